"""What a built release does on a host: slow, because it is built first."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import bundle
from bundle import bytecode, elf, source, sources
from bundle.archive import read_archive
from bundle.cache import default_directory, opened
from tests.bundle.conftest import VERSION, Built, write_source

pytestmark = pytest.mark.slow

# The parts of glibc, named here once more: what a release may take from its host.
FROM_HOST = (
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
)


def objects(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and elf.is_elf(path.read_bytes()[:4]):
            yield path


def listed(loader: Path, path: Path, **environment: str) -> dict[str, Path]:
    """What the host's loader makes of one object: name to file."""
    done = subprocess.run(
        [loader, "--list", path], env=environment, capture_output=True, text=True, check=True
    )
    lines = (line.split(" => ") for line in done.stdout.splitlines() if " => " in line)
    return {name.strip(): Path(rest.rpartition(" (")[0]) for name, rest in lines}


def run(command: list[str | Path], **environment: str) -> dict[str, object]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def files(folder: Path) -> list[tuple[str, int]]:
    return [(str(path), path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]


def test_the_archive_holds_what_hosts_accept_and_no_more(built: Built) -> None:
    top = built.folder.name
    assert built.archive.name == f"hostsync-{VERSION}-{top.removeprefix('hostsync-')}.tar.gz"
    with tarfile.open(built.archive) as archive:
        members = archive.getmembers()
    names = [member.name for member in members]
    assert names == sorted(names)
    assert len({name.casefold() for name in names}) == len(names) < 20_000
    assert {name.partition("/")[0] for name in names} == {top}
    assert {(m.uid, m.gid, m.mtime, bool(m.pax_headers)) for m in members} == {
        (0, 0, 315_532_800, False)
    }
    assert {(m.type, m.mode) for m in members} == {
        (tarfile.DIRTYPE, 0o755),
        (tarfile.REGTYPE, 0o755),
        (tarfile.REGTYPE, 0o644),
    }
    programs = {m.name.removeprefix(f"{top}/") for m in members if m.isreg() and m.mode & 0o111}
    assert programs == {
        "bin/hostsync",
        "bin/hostsync-credential",
        f"python/bin/python{built.interpreter.version}",
    }
    assert built.archive.stat().st_size < 25 << 20


def test_every_library_is_found_in_the_release_or_is_glibc(built: Built, tmp_path: Path) -> None:
    decoys = tmp_path / "decoys"
    decoys.mkdir()
    found = list(objects(built.folder))
    for path in found:
        if ".so" in path.name:
            (decoys / path.name).write_bytes(b"not a library")
    for path in found:
        for name, file in listed(
            built.interpreter.loader, path, LD_LIBRARY_PATH=str(decoys)
        ).items():
            inside = file.resolve().is_relative_to(built.folder)
            assert inside or name in FROM_HOST, (path, name, file)
    assert len(found) > 20


def test_it_runs_with_its_own_files_only(built: Built) -> None:
    answer = run([built.folder / "bin/hostsync", "a b", "*"])
    assert answer["argv"] == ["a b", "*"]
    assert answer["version"] == VERSION
    assert answer["prefix"] == str(built.folder / "python")
    assert answer["sha256"] == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (str(answer["ssl"])[:8], answer["json"]) == ("OpenSSL ", "[1]")
    mapped, modules = answer["mapped"], answer["modules"]
    assert isinstance(mapped, list)
    assert isinstance(modules, list)
    foreign = [file for file in mapped if not Path(file).is_relative_to(built.folder)]
    loader = built.interpreter.loader.resolve().name
    allowed = (*FROM_HOST, loader, "locale-archive", "gconv-modules.cache", "C.utf8")
    assert [file for file in foreign if not any(name in file for name in allowed)] == []
    assert [file for file in modules if not Path(file).is_relative_to(built.folder)] == []


def test_text_is_utf8_whatever_the_locale(built: Built) -> None:
    answer = run([built.folder / "bin/hostsync", "\u00e9"], LC_ALL="C", PYTHONUTF8="0")
    assert (answer["utf8"], answer["argv"]) == (1, ["\u00e9"])


def test_the_shim_says_its_version_and_protocol(built: Built) -> None:
    command = [str(built.folder / "bin/hostsync-credential"), "version"]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"hostsync-credential {VERSION} (protocol 7)\n", "")


def test_a_hostile_environment_changes_nothing_and_is_passed_on(
    built: Built, tmp_path: Path
) -> None:
    for path in objects(built.folder / "python"):
        (tmp_path / path.name).write_bytes(b"not a library")
    (tmp_path / "json.py").write_text("raise SystemExit('taken over')\n")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('taken over')\n")
    python = {
        "PYTHONPATH": str(tmp_path),
        "PYTHONHOME": "/nowhere",
        "PYTHONSTARTUP": str(tmp_path / "json.py"),
        "PYTHONPLATLIBDIR": "nowhere",
        "PYTHONINSPECT": "1",
        "PYTHONWARNINGS": "error",
    }
    loader = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "LD_PRELOAD": str(tmp_path / "absent.so"),
        "LD_AUDIT": str(tmp_path / "absent.so"),
    }
    answer = run([built.folder / "bin/hostsync"], **python, **loader, HTTPS_PROXY="http://p:1")
    environment = answer["environment"]
    assert isinstance(environment, dict)
    assert answer["prefix"] == str(built.folder / "python")
    assert not loader.keys() & environment.keys()
    assert {name: environment[name] for name in python} == python
    assert environment["HTTPS_PROXY"] == "http://p:1"


def test_the_interpreter_alone_keeps_its_libraries_too(built: Built, tmp_path: Path) -> None:
    for path in objects(built.folder / "python"):
        (tmp_path / path.name).write_bytes(b"not a library")
    program = built.folder / "python/bin" / f"python{built.interpreter.version}"
    query = "import ssl, zlib, ctypes, json; print(json.dumps({'ok': ssl.OPENSSL_VERSION[:7]}))"
    answer = run([program, "-I", "-S", "-c", query], LD_LIBRARY_PATH=str(tmp_path))
    assert answer == {"ok": "OpenSSL"}


def test_running_it_leaves_the_release_as_it_was(built: Built) -> None:
    before = files(built.folder)
    run([built.folder / "bin/hostsync"])
    assert files(built.folder) == before


def test_the_exit_status_of_the_command_line_is_passed_on(built: Built) -> None:
    command = [str(built.folder / "bin/hostsync"), "fail"]
    done = subprocess.run(command, env={}, stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 5


def test_a_running_process_stays_with_its_release_when_the_link_is_switched(
    built: Built, tmp_path: Path
) -> None:
    for slot in ("blue", "green"):
        shutil.copytree(built.folder, tmp_path / slot, copy_function=os.link)
    current = tmp_path / "current"
    current.symlink_to("blue")
    process = subprocess.Popen(
        [current / "bin/hostsync", "wait"], env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (tmp_path / "next").symlink_to("green")
        (tmp_path / "next").replace(current)
        shutil.rmtree(tmp_path / "green" / "python")
        process.stdin.write(b"\n")
        process.stdin.close()
        answer = json.loads(process.stdout.read())
    assert answer["prefix"] == str(tmp_path / "blue/python")
    assert all(Path(file).is_relative_to(tmp_path / "blue") for file in answer["modules"])


def test_licences_of_all_that_is_redistributed_are_inside(built: Built) -> None:
    licences = built.folder / "share/licenses"
    assert (licences / "hostsync/LICENSE").read_text() == "Licence of this source tree\n"
    assert "PYTHON SOFTWARE FOUNDATION" in (licences / "python/LICENSE.txt").read_text()
    metadata = (built.folder / "lib/hostsync").glob("*.dist-info")
    assert [path.name for path in metadata if len(list(path.rglob("LICEN*"))) == 0] == []


@pytest.mark.root
def test_it_runs_on_a_read_only_mount_beside_nothing_but_glibc_and_a_shell(
    built: Built, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    rootfs = tmp_path / "rootfs"
    for folder in ("proc", "usr/local/lib/hostsync/blue", "usr/local/bin"):
        (rootfs / folder).mkdir(parents=True)
    (rootfs / "usr/local/lib/hostsync/current").symlink_to("blue")
    link = rootfs / "usr/local/bin/hostsync"
    link.symlink_to("../lib/hostsync/current/bin/hostsync")
    install_shell_and_glibc(built, rootfs)
    script = """
        mount --bind "$1" "$2/usr/local/lib/hostsync/blue"
        mount -o remount,bind,ro "$2/usr/local/lib/hostsync/blue"
        mount --rbind /proc "$2/proc"
        exec chroot "$2" /usr/local/bin/hostsync inside
    """
    enter: list[str | Path] = ["unshare", "--mount", "--propagation", "private"]
    answer = run([*enter, "sh", "-ec", script, "sh", built.folder, rootfs], PATH=os.environ["PATH"])
    assert answer["prefix"] == "/usr/local/lib/hostsync/blue/python"
    assert answer["argv"] == ["inside"]
    assert not list((rootfs / "usr/local/lib/hostsync/blue").iterdir())


def install_shell_and_glibc(built: Built, rootfs: Path) -> None:
    loader = built.interpreter.loader
    shell = Path("/bin/sh").resolve()
    wanted = {Path("/bin/sh"): shell, loader: loader}
    for path in (shell, *objects(built.folder)):
        for name, file in listed(loader, path).items():
            if name in FROM_HOST:
                wanted[file] = file
    for place, file in wanted.items():
        target = rootfs / place.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


@pytest.mark.parametrize("built", [None], ids=["own"], indirect=True)
def test_a_build_in_another_folder_differs_by_its_version_alone_as_repack_predicts(
    built: Built, tmp_path: Path
) -> None:
    other = bundle.build(
        bundle.BuildOptions(
            source=write_source(tmp_path / "another place"),
            output=tmp_path,
            version="2.0.0",
            python=built.interpreter.executable,
            cache=None,  # the other one was built through the cache
        )
    )

    repacked = bundle.repack(built.archive, tmp_path / "repacked.tar.gz", version="2.0.0")

    assert repacked.read_bytes() == other.read_bytes()
    back = bundle.repack(other, tmp_path / "back.tar.gz", version=VERSION)
    assert back.read_bytes() == built.archive.read_bytes()
    before, after = read_archive(built.archive).tree, read_archive(other).tree
    assert before.keys() == after.keys()
    stamped = {bytecode.compiled_name(name) for name in source.version_files()}
    stamped.add(sources.SOURCES)
    assert {name for name in before if before[name] != after[name]} == stamped
    # And what is in the cache by now is what was compiled without it.
    with opened(default_directory(os.environ)) as cache:
        known = bytecode.compile_sources(sources.unpack(after), built.interpreter, cache)
    anew = {name: after[name] for name in after if name.endswith(".pyc")}
    assert bytecode.as_entries(known) == anew
