from pathlib import Path

import pytest

from bundle import elf, libraries
from bundle.errors import LibraryError
from bundle.interpreter import Interpreter
from bundle.relink import relink
from bundle.tree import Entry, read_entry


@pytest.fixture(scope="module")
def ssl_module(own_interpreter: Interpreter) -> Path:
    (path,) = (own_interpreter.stdlib / "lib-dynload").glob("_ssl.*.so")
    return path


def test_search_paths_lead_from_each_object_to_its_libraries() -> None:
    providers = {"liba.so": "python/lib/liba.so", "libb.so": "lib/x.libs/libb.so"}
    find = libraries.search_path
    assert find("python/bin/python", ("liba.so", "libc.so.6"), providers) == "$ORIGIN/../lib"
    assert find("python/lib/liba.so", ("liba.so",), providers) == "$ORIGIN"
    assert (
        find("lib/x/core.so", ("liba.so", "libb.so"), providers)
        == "$ORIGIN/../../python/lib:$ORIGIN/../x.libs"
    )
    assert find("lib/x/core.so", ("libc.so.6",), providers) is None


def test_libraries_of_libraries_come_along_and_glibc_does_not(
    own_interpreter: Interpreter, ssl_module: Path
) -> None:
    name = "python/lib/python3.11/lib-dynload/_ssl.so"
    closed = libraries.close({name: read_entry(ssl_module)}, own_interpreter)
    needed = elf.parse(ssl_module.read_bytes()).needed
    added = {path.rpartition("/")[2] for path in closed if path != name}
    assert added >= {library for library in needed if library.startswith(("libssl", "libcrypto"))}
    assert not added & libraries.GLIBC
    assert elf.parse(closed[name].content).rpath == "$ORIGIN/../.."


def test_a_library_that_the_machine_lacks_is_named(
    own_interpreter: Interpreter, ssl_module: Path, tmp_path: Path
) -> None:
    path = tmp_path / "_ssl.so"
    path.write_bytes(ssl_module.read_bytes().replace(b"libcrypto.so.", b"libabsent.so."))
    with pytest.raises(LibraryError, match=r"_ssl\.so cannot be loaded: .*libabsent"):
        libraries.close({"lib/_ssl.so": read_entry(path)}, own_interpreter)


def test_a_name_that_means_two_files_is_refused(
    own_interpreter: Interpreter, ssl_module: Path, tmp_path: Path
) -> None:
    whole = libraries.close({"lib/_ssl.so": read_entry(ssl_module)}, own_interpreter)
    for name, entry in whole.items():
        if name.startswith("python/lib/") and entry.origin is not None:
            (tmp_path / Path(name).name).write_bytes(entry.origin.read_bytes())
    other = tmp_path / "_ssl.so"
    other.write_bytes(relink(ssl_module.read_bytes(), "$ORIGIN"))
    tree = {"lib/a.so": read_entry(ssl_module), "lib/b.so": read_entry(other)}
    with pytest.raises(LibraryError, match=r"means .* and, for .*_ssl\.so"):
        libraries.close(tree, own_interpreter)


def test_a_damaged_object_is_named(own_interpreter: Interpreter, tmp_path: Path) -> None:
    path = tmp_path / "damaged.so"
    path.write_bytes(elf.MAGIC + b"nothing else")
    tree = {"lib/damaged.so": read_entry(path), "lib/a.py": Entry(content=b"")}
    with pytest.raises(LibraryError, match=r"damaged\.so cannot be loaded"):
        libraries.close(tree, own_interpreter)
