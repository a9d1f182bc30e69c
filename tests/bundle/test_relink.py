import shutil
import subprocess
from pathlib import Path

import pytest

from bundle import elf
from bundle.errors import ElfError
from bundle.interpreter import Interpreter
from bundle.relink import relink


@pytest.fixture(scope="module")
def ssl_module(own_interpreter: Interpreter) -> Path:
    (path,) = (own_interpreter.stdlib / "lib-dynload").glob("_ssl.*.so")
    return path


def resolved(loader: Path, path: Path, library_path: Path | None = None) -> dict[str, str]:
    """What the machine's own loader would load for an object, by name."""
    environment = {"LD_LIBRARY_PATH": str(library_path)} if library_path else {}
    done = subprocess.run(
        [loader, "--list", path], env=environment, capture_output=True, text=True, check=True
    )
    pairs = (line.split() for line in done.stdout.splitlines() if " => " in line)
    return {words[0]: words[2] for words in pairs}


def test_the_search_path_wins_over_ld_library_path(
    own_interpreter: Interpreter, ssl_module: Path, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    system = resolved(own_interpreter.loader, ssl_module)
    for folder in (ours, theirs):
        folder.mkdir()
        for name in ("libssl.so.3", "libcrypto.so.3"):
            content = Path(system[name]).read_bytes()
            (folder / name).write_bytes(relink(content, "$ORIGIN"))
    module = tmp_path / "deep" / "down" / "_ssl.so"
    module.parent.mkdir(parents=True)
    module.write_bytes(relink(ssl_module.read_bytes(), "$ORIGIN/../../ours"))

    found = resolved(own_interpreter.loader, module, library_path=theirs)

    chosen = {Path(found[name]).resolve().parent for name in ("libssl.so.3", "libcrypto.so.3")}
    assert chosen == {ours}


def test_a_relinked_program_still_runs(own_interpreter: Interpreter, tmp_path: Path) -> None:
    program = tmp_path / "python"
    folder = str(own_interpreter.libdir)
    program.write_bytes(relink(own_interpreter.executable.read_bytes(), folder))
    program.chmod(0o755)
    done = subprocess.run([program, "-V"], env={}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Python 3.")


def test_relinking_again_changes_nothing(ssl_module: Path) -> None:
    once = relink(ssl_module.read_bytes(), "$ORIGIN/lib")
    assert relink(once, "$ORIGIN/lib") == once


def test_a_search_path_can_be_taken_away(ssl_module: Path) -> None:
    bare = elf.parse(relink(relink(ssl_module.read_bytes(), "/somewhere"), None))
    assert (bare.rpath, bare.runpath) == (None, None)
    assert bare.needed == elf.parse(ssl_module.read_bytes()).needed


def test_what_is_not_loaded_is_dropped_and_the_loaded_sections_keep_their_names(
    own_interpreter: Interpreter, ssl_module: Path, tmp_path: Path
) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf")
    result = tmp_path / "_ssl.so"
    result.write_bytes(relink(ssl_module.read_bytes(), "$ORIGIN"))
    done = subprocess.run(["readelf", "-SdW", result], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert ".debug" not in done.stdout
    assert ".symtab" not in done.stdout
    for name in (".dynsym", ".dynstr", ".text", ".data", ".shstrtab"):
        assert f" {name} " in done.stdout
    assert "Library rpath: [$ORIGIN]" in done.stdout


def test_an_object_without_a_note_to_give_up_is_refused_with_a_remedy(ssl_module: Path) -> None:
    image = bytearray(ssl_module.read_bytes())
    sound = elf.parse(bytes(image))
    for at, segment in enumerate(sound.segments):
        if segment.type == elf.PT_NOTE:
            place = sound.header.phoff + at * elf.PHDR.size
            elf.PHDR.pack_into(image, place, *segment._replace(type=0))
    with pytest.raises(ElfError, match=r"no note segment .* GNU ld"):
        relink(bytes(image), "$ORIGIN")


def test_a_full_dynamic_section_is_refused_with_a_remedy(ssl_module: Path) -> None:
    image = bytearray(ssl_module.read_bytes())
    sound = elf.parse(bytes(image))
    room = sound.table.size // elf.DYN.size
    entries = [(tag, value) for tag, value in sound.dynamic if tag != elf.DT_RUNPATH]
    entries += [(0x6FFFFEF0, 0)] * (room - 1 - len(entries)) + [(elf.DT_NULL, 0)]
    raw = b"".join(elf.DYN.pack(*entry) for entry in entries)
    image[sound.table.offset : sound.table.offset + len(raw)] = raw
    with pytest.raises(ElfError, match="no room"):
        relink(bytes(image), "$ORIGIN")


def test_an_object_whose_linker_kept_no_spare_entry_gets_its_search_path(
    own_interpreter: Interpreter, tmp_path: Path
) -> None:
    """lld's objects are so: what is bundled of `cryptography` is one of them."""
    from cryptography.hazmat.bindings import _rust

    original = Path(_rust.__file__).read_bytes()
    module = tmp_path / "_rust.so"
    module.write_bytes(relink(original, "$ORIGIN/lib"))
    relinked = elf.parse(module.read_bytes())
    assert relinked.rpath == "$ORIGIN/lib"
    assert relinked.needed == elf.parse(original).needed
    libgcc = resolved(own_interpreter.loader, Path(_rust.__file__))["libgcc_s.so.1"]
    (tmp_path / "lib").mkdir()
    shutil.copy(libgcc, tmp_path / "lib")
    found = resolved(own_interpreter.loader, module)["libgcc_s.so.1"]
    assert Path(found).resolve().parent == tmp_path / "lib"
