from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bundle import packages
from bundle.errors import PackageError


def install(site: Path, name: str, version: str, *requires: str, extra: dict[str, str]) -> None:
    """Lay a distribution into a directory the way pip does."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    files = {
        f"{name}/__init__.py": f"name = {name!r}\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\n",
        f"{info}/licenses/LICENSE": f"Licence of {name}\n",
        **extra,
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    for file, text in {**files, f"{info}/RECORD": record}.items():
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def resolve(site: Path, *lines: str) -> dict[str, str]:
    found = packages.resolve([Requirement(line) for line in lines], [str(site)])
    return {name: distribution.version for name, distribution in found.items()}


def test_requirements_are_followed_where_their_markers_hold(tmp_path: Path) -> None:
    install(
        tmp_path,
        "alpha",
        "1.0",
        "beta>=2",
        "windows_only; platform_system == 'Windows'",
        "optional; extra == 'more'",
        extra={},
    )
    install(tmp_path, "beta", "2.1", "alpha", extra={})
    assert resolve(tmp_path, "alpha>=1") == {"alpha": "1.0", "beta": "2.1"}


def test_an_extra_that_was_asked_for_is_followed(tmp_path: Path) -> None:
    install(tmp_path, "alpha", "1.0", "optional; extra == 'more'", extra={})
    install(tmp_path, "optional", "3.0", extra={})
    assert resolve(tmp_path, "alpha", "alpha[more]") == {"alpha": "1.0", "optional": "3.0"}


def test_what_would_be_imported_and_never_used_is_left_out(tmp_path: Path) -> None:
    install(tmp_path, "alpha", "1.0", "h2<5", "beta", extra={})
    install(tmp_path, "h2", "4.0", "hpack", extra={})
    install(tmp_path, "hpack", "4.0", extra={})
    install(tmp_path, "beta", "2.1", extra={})
    assert resolve(tmp_path, "alpha") == {"alpha": "1.0", "beta": "2.1"}


def test_a_missing_dependency_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    install(tmp_path, "alpha", "1.0", "absent>=2", extra={})
    with pytest.raises(PackageError, match=r"absent>=2 is not installed.*pip install 'absent>=2'"):
        resolve(tmp_path, "alpha")


def test_an_installed_version_that_does_not_satisfy_is_refused(tmp_path: Path) -> None:
    install(tmp_path, "alpha", "1.0", extra={})
    with pytest.raises(PackageError, match=r"alpha>=2 is installed as 1\.0"):
        resolve(tmp_path, "alpha>=2")


def test_modules_and_licences_are_taken_and_nothing_that_only_installs(tmp_path: Path) -> None:
    extra = {
        "alpha/data.json": "{}",
        "alpha/tests/test_alpha.py": "",
        "alpha/_core.pyi": "",
        "alpha/__pycache__/x.cpython-311.pyc": "",
        "../bin/alpha": "#!/bin/sh\n",
    }
    install(tmp_path / "site", "alpha", "1.0", extra=extra)
    found = packages.resolve([Requirement("alpha")], [str(tmp_path / "site")])
    names = [name.removeprefix("lib/hostsync/") for name in packages.collect(found)]
    assert sorted(names) == [
        "alpha-1.0.dist-info/METADATA",
        "alpha-1.0.dist-info/licenses/LICENSE",
        "alpha/__init__.py",
        "alpha/data.json",
    ]


def test_an_editable_checkout_is_refused(tmp_path: Path) -> None:
    install(tmp_path, "alpha", "1.0", extra={})
    (tmp_path / "alpha" / "__init__.py").unlink()
    found = packages.resolve([Requirement("alpha")], [str(tmp_path)])
    with pytest.raises(PackageError, match="alpha lists no modules"):
        packages.collect(found)


def test_two_packages_that_disagree_about_a_file_are_refused(tmp_path: Path) -> None:
    for name in ("alpha", "beta"):
        install(tmp_path / name, name, "1.0", extra={"shared/data.json": name})
    found = packages.resolve(
        [Requirement("alpha"), Requirement("beta")],
        [str(tmp_path / "alpha"), str(tmp_path / "beta")],
    )
    with pytest.raises(PackageError, match=r"different content for lib/hostsync/shared/data\.json"):
        packages.collect(found)
