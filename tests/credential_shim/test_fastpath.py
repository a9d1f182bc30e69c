"""What the cached path may load: a module more is a millisecond more in every kubectl."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

import credential_shim
from tests.credential_shim.entra_server import EntraServer
from tests.credential_shim.imds_server import ImdsServer, refuse
from tests.credential_shim.slot_root import HUNG_SECONDS, PYTHON, Run, SlotRoot, run

PACKAGE = "credential_shim"
OWN_MODULES = {
    PACKAGE,
    *(
        f"{PACKAGE}.{name}"
        for name in (
            "_version",
            "arguments",
            "command",
            "entries",
            "errors",
            "fastpath",
            "identity",
            "layers",
            "seals",
            "stdio",
        )
    ),
}

# Ends the process as the shim does, but tells on stderr what was loaded by then.
SPY = """
import os, sys
leave = os._exit
def tell(code):
    os.write(2, " ".join(sorted(sys.modules)).encode())
    leave(code)
os._exit = tell
sys.argv[0:1] = []
main = sys.argv[0]
sys.path.insert(0, main.rpartition("/")[0].rpartition("/")[0])
from credential_shim.command import entry
entry()
"""


def spied(root: SlotRoot, *words: str) -> tuple[Run, set[str]]:
    main = root.path / "blue" / "lib" / "hostsync" / PACKAGE / "__main__.py"
    shell = ["/bin/sh", "-c", '"$0" "$@"; exit $?']
    result = run([*shell, PYTHON, "-I", "-S", "-c", SPY, str(main), *words])
    return result, set(result.err.split())


def baseline() -> set[str]:
    code = "import os, sys, time; os.write(1, ' '.join(sys.modules).encode())"
    return set(run([PYTHON, "-I", "-S", "-c", code]).out.decode().split())


@pytest.mark.slow
def test_the_cached_path_loads_os_and_time_and_nothing_else(
    root: SlotRoot, imds: ImdsServer, flags: tuple[str, ...]
) -> None:
    first = root.run("get-token", *flags)
    result, loaded = spied(root, "get-token", *flags)
    assert result.code == 0
    assert result.out == first.out
    assert len(imds.seen) == 1
    assert loaded - baseline() == OWN_MODULES


@pytest.mark.slow
def test_the_slow_path_stays_free_of_the_costly_modules(
    root: SlotRoot, flags: tuple[str, ...]
) -> None:
    result, loaded = spied(root, "get-token", *flags)
    assert json.loads(result.out)["kind"] == "ExecCredential"
    costly = {
        "argparse", "asyncio", "dataclasses", "email", "http.client", "inspect", "logging",
        "pathlib", "ssl", "subprocess", "tempfile", "typing", "urllib.request",
    }  # fmt: skip
    assert not loaded & costly


def test_the_package_imports_nothing_of_hostsync_or_nspawn() -> None:
    for path in Path(credential_shim.__file__).parent.glob("*.py"):
        lines = path.read_text().splitlines()
        imports = [line.split() for line in lines if line.strip().startswith(("import ", "from "))]
        assert not any(words[1].split(".")[0] in ("hostsync", "nspawn") for words in imports)


CLIENT_MODULES = {f"{PACKAGE}.{name}" for name in ("configuration", "principal", "proofs")}


@pytest.mark.slow
def test_a_clients_cached_path_loads_no_more_and_reads_no_secret(
    root: SlotRoot, entra: EntraServer, client_flags: tuple[str, ...], secret_file: Path
) -> None:
    words = ("get-token", *client_flags, "--client-secret-file", str(secret_file))
    first = root.run(*words)
    result, loaded = spied(root, *words)
    assert result.out == first.out
    assert len(entra.seen) == 1
    assert loaded - baseline() == OWN_MODULES | CLIENT_MODULES


@pytest.mark.slow
def test_a_remembered_failure_loads_no_more_than_a_credential(
    root: SlotRoot, imds: ImdsServer, flags: tuple[str, ...]
) -> None:
    imds.then(refuse(429, Retry_After="60"))
    assert root.run("get-token", *flags).code == 6
    result, loaded = spied(root, "get-token", *flags)
    assert result.code == 6
    assert len(imds.seen) == 1
    said = {word for word in loaded if word in OWN_MODULES or "." not in word}
    assert not said & {"json", "socket", "enum", "re", "fcntl"}
    assert not loaded & {f"{PACKAGE}.serving", f"{PACKAGE}.imds", f"{PACKAGE}.issue"}


@pytest.mark.slow
def test_whoever_waits_for_another_process_loads_nothing_that_only_a_fetch_needs(
    root: SlotRoot, imds: ImdsServer, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Two hundred that start at once share the processors: those that wait have to be cheap."""
    first = root.run("get-token", *flags)
    files = (tmp_path / "cache").iterdir()
    (entry,) = (path for path in files if not path.name.endswith((".seen", ".lock")))
    content = entry.read_bytes()
    entry.unlink()
    lock = entry.with_name(f"{entry.name}.lock")
    with lock.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        main = root.path / "blue" / "lib" / "hostsync" / PACKAGE / "__main__.py"
        command = [PYTHON, "-I", "-S", "-c", SPY, str(main), "get-token", *flags]
        waiter = subprocess.Popen(command, env={}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while waiter.poll() is None and str(lock) not in opened_by(waiter.pid):
            os.sched_yield()
        entry.touch(0o600)
        entry.write_bytes(content)
        out, err = waiter.communicate(timeout=HUNG_SECONDS)
    assert (waiter.returncode, out) == (0, first.out)
    assert len(imds.seen) == 1
    loaded = set(err.decode().split())
    costly = {"json", "socket", "enum", "re", "contextlib", "collections", "datetime", "functools"}
    assert not loaded & {*costly, f"{PACKAGE}.imds", f"{PACKAGE}.exchange", f"{PACKAGE}.credential"}


def opened_by(pid: int) -> set[str]:
    """The files that a process has open at this moment."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            found.add(str(link.readlink()))
    return found
