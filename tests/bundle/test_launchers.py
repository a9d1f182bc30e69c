import shutil
import subprocess
from pathlib import Path

import pytest

from bundle.bytecode import compiled_name
from bundle.errors import PackageError
from bundle.launchers import MAIN_CREDENTIAL, write_launchers
from bundle.tree import Entry

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]

# Stands for the interpreter: tells its own place, directory, arguments and loader variables.
PYTHON = """#!/bin/sh
printf '%s\\n' "$0" "$PWD" "${LD_LIBRARY_PATH-unset}" "$@"
"""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release directory in a slot, with `current` and the compatibility link set up."""
    slots = tmp_path / "usr local" / "lib" / "hostsync"
    folder = write_release(slots / "blue")
    (slots / "current").symlink_to("blue")
    links = tmp_path / "usr local" / "bin"
    links.mkdir()
    (links / "hostsync").symlink_to("../lib/hostsync/current/bin/hostsync")
    return folder


def write_release(folder: Path) -> Path:
    tree = write_launchers({MAIN_CREDENTIAL: Entry(content=b"")}, "3.11")
    program = Entry(content=PYTHON.encode(), executable=True)
    for name, entry in {**tree, "python/bin/python3.11": program}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.content)
        path.chmod(entry.mode)
    return folder


def start(*command: str | Path, cwd: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def expected(release: Path, cwd: Path, *arguments: str) -> list[str]:
    main = str(release / "lib/hostsync/main_hostsync.pyc")
    python = str(release / "python/bin/python3.11")
    return [python, str(cwd), "unset", "-I", "-S", "-B", "-X", "utf8", main, *arguments]


def shell_command(shell: str) -> list[str]:
    return [shell, "sh"] if shell == "busybox" else [shell]


def test_arguments_and_directory_are_passed_on_untouched(release: Path, tmp_path: Path) -> None:
    arguments = ["a b", "", "*", "$HOME", "-x", "--", "'\"", "\u00e9"]
    found = start(release / "bin/hostsync", *arguments, cwd=tmp_path)
    assert found == expected(release, tmp_path, *arguments)


def test_the_loader_of_the_caller_has_no_say(release: Path, tmp_path: Path) -> None:
    found = start(release / "bin/hostsync", cwd=tmp_path, LD_LIBRARY_PATH="/nowhere", CDPATH="/usr")
    assert found == expected(release, tmp_path)


def test_the_credential_launcher_starts_the_shim(release: Path, tmp_path: Path) -> None:
    found = start(release / "bin/hostsync-credential", "version", cwd=tmp_path)
    assert found[-2:] == [str(release / compiled_name(MAIN_CREDENTIAL)), "version"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "path",
    [
        "usr local/lib/hostsync/blue/bin/hostsync",
        "usr local/lib/hostsync/current/bin/hostsync",
        "usr local/lib/hostsync/blue/bin/../bin/hostsync",
        "usr local/bin/hostsync",
        "./usr local/bin/hostsync",
        "via folder/hostsync",
        "another link",
        "link to link",
        "-dash",
    ],
)
@pytest.mark.parametrize("absolute", [True, False])
def test_the_release_is_found_through_any_path(
    release: Path, tmp_path: Path, shell: str, path: str, *, absolute: bool
) -> None:
    (tmp_path / "via folder").symlink_to("usr local/bin")
    (tmp_path / "another link").symlink_to(release / "bin/hostsync")
    (tmp_path / "link to link").symlink_to("another link")
    (tmp_path / "-dash").symlink_to("another link")
    spelled = f"{tmp_path}/{path}" if absolute else path if "/" in path else f"./{path}"
    found = start(*shell_command(shell), spelled, "x", cwd=tmp_path, CDPATH=f"{tmp_path}/usr local")
    assert found == expected(release, tmp_path, "x")


@pytest.mark.parametrize("entry", ["usr local/bin", "", "usr local/lib/hostsync/current/bin"])
def test_a_bare_name_is_found_through_path(release: Path, tmp_path: Path, entry: str) -> None:
    (tmp_path / "hostsync").symlink_to(release / "bin/hostsync")
    search = f"{tmp_path}/nothing:{entry}"
    command = ["/usr/bin/env", f"PATH={search}", "hostsync"]
    assert start(*command, cwd=tmp_path) == expected(release, tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_may_be_given_the_bare_name(release: Path, shell: str) -> None:
    here = release / "bin"
    assert start(*shell_command(shell), "hostsync", cwd=here) == expected(release, here)


def test_a_link_beside_another_release_leads_to_its_own(release: Path, tmp_path: Path) -> None:
    other = write_release(tmp_path / "opt" / "hostsync" / "green")
    link = tmp_path / "usr local" / "bin" / "hostsync"
    link.unlink()
    link.symlink_to(other / "bin/hostsync")
    assert start(link, cwd=tmp_path) == expected(other, tmp_path)


def test_the_launcher_runs_no_program_on_the_way_of_hosts(release: Path, tmp_path: Path) -> None:
    compatibility = tmp_path / "usr local" / "bin" / "hostsync"
    trace = subprocess.run(
        ["/bin/sh", "-x", compatibility], env={}, capture_output=True, text=True, check=True
    )
    assert "readlink" not in trace.stderr
    assert "exec" in trace.stderr


def test_a_copy_outside_a_release_is_refused_with_a_remedy(release: Path, tmp_path: Path) -> None:
    copy = tmp_path / "hostsync"
    shutil.copy(release / "bin/hostsync", copy)
    done = subprocess.run([copy], env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (127, "")
    assert "neither in a release directory nor a link into one; link it to" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_exit_status_is_the_programs(release: Path) -> None:
    python = release / "python/bin/python3.11"
    python.write_text("#!/bin/sh\nexit 6\n")
    done = subprocess.run([release / "bin/hostsync"], env={}, check=False)
    assert done.returncode == 6


def test_a_source_tree_without_the_shim_is_refused() -> None:
    with pytest.raises(PackageError, match=r"credential_shim/__main__\.py.*hostsync-credential"):
        write_launchers({}, "3.11")


def test_launchers_are_valid_in_every_shell_here() -> None:
    tree = write_launchers({MAIN_CREDENTIAL: Entry(content=b"")}, "3.11")
    for shell in SHELLS:
        for name in ("bin/hostsync", "bin/hostsync-credential"):
            command = [*shell_command(shell), "-n"]
            subprocess.run(command, input=tree[name].content, check=True)
