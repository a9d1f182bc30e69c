from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bundle import source
from bundle.errors import OptionError, PackageError
from tests.bundle.conftest import write_source

VERSION_MODULE = '"""Doc."""\n\nVERSION = "0.1.0"  # the one place\n"""More."""\n\nPROTOCOL = 3\n'


def test_stamping_changes_the_version_and_nothing_else() -> None:
    stamped = source.stamp(VERSION_MODULE, "1.2.3rc1", name="_version.py")
    assert stamped == VERSION_MODULE.replace("0.1.0", "1.2.3rc1")


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.text(max_size=20))
def test_no_text_but_a_version_gets_into_a_module_or_a_file_name(text: str) -> None:
    try:
        source.check_version(text)
    except OptionError:
        return
    assert all(character.isalnum() or character in ".+" for character in text)
    assert text[0].isdigit()


@pytest.mark.parametrize(
    "version", ["1.0", "1.0.0", "0.1.0.dev3", "2.0rc1", "1.0.post1", "1.0+a.1"]
)
def test_usual_versions_are_accepted(version: str) -> None:
    assert source.check_version(version) == version


@pytest.mark.parametrize("version", ["", "1", "v1.0.0", "1.0/../x", '1.0"', "1.0\n", "latest"])
def test_other_texts_are_refused(version: str) -> None:
    with pytest.raises(OptionError, match="is not a version"):
        source.check_version(version)


@pytest.mark.parametrize(
    "text", ["PROTOCOL = 1\n", "VERSION = 1\n", 'VERSION = "1"\nVERSION = "2"\n', "VERSION ="]
)
def test_a_module_without_exactly_one_version_is_refused(text: str) -> None:
    with pytest.raises(PackageError, match=r"_version\.py"):
        source.stamp(text, "1.0.0", name="_version.py")


def test_both_packages_with_a_version_get_the_requested_one(tmp_path: Path) -> None:
    tree = source.collect(write_source(tmp_path), "3.4.5")
    for name in source.version_files():
        assert b'VERSION = "3.4.5"' in tree[name].content
        assert b"PROTOCOL = 7" in tree[name].content


def test_data_is_taken_and_tests_caches_and_hidden_files_are_not(tmp_path: Path) -> None:
    root = write_source(tmp_path)
    for name in ("tests/test_x.py", "__pycache__/cli.cpython-311.pyc", ".cli.py.swp", "left.pyc"):
        path = root / "hostsync" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    names = [name for name in source.collect(root, "1.0.0") if "/hostsync/hostsync/" in name]
    assert [name.removeprefix("lib/hostsync/hostsync/") for name in sorted(names)] == [
        "__init__.py",
        "_version.py",
        "assets/hostsync.service",
        "cli.py",
    ]


@pytest.mark.parametrize("target", ["cli.py", "assets"])
def test_a_link_in_a_package_is_refused(tmp_path: Path, target: str) -> None:
    root = write_source(tmp_path)
    (root / "hostsync" / "linked").symlink_to(target)
    with pytest.raises(PackageError, match="linked is a link"):
        source.collect(root, "1.0.0")


@pytest.mark.parametrize("name", ["nspawn/__init__.py", "credential_shim/_version.py"])
def test_an_incomplete_source_tree_is_refused(tmp_path: Path, name: str) -> None:
    root = write_source(tmp_path)
    (root / name).unlink()
    with pytest.raises(PackageError, match=name.partition("/")[0]):
        source.collect(root, "1.0.0")
