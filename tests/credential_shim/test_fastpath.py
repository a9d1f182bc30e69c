"""What the cached path may load: a module more is a millisecond more in every kubectl."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import credential_shim
from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import PYTHON, Run, SlotRoot, run

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
