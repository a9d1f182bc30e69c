"""What a machine's settings bind at its next start, on the real door to them.

/etc is the test's own, in a mount namespace that ends with it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hostsync.layout import CREDENTIAL_INSIDE
from hostsync.machines import NspawnMachines
from hostsync.workers import Machines
from nspawn.machined import Machined
from tests.nspawn.namespaces import in_mount_namespace, mount_tmpfs

pytestmark = pytest.mark.root

SETTINGS = Path("/etc/systemd/nspawn/kube1.nspawn")
EQUAL = "[Exec]\nPrivateUsers=no\n"


def bound(tmp_path: Path, text: str, policy: Machines, *, shared: bool = True) -> list[str]:
    """The binds in the settings of kube1 afterwards, and what was answered, as its last word."""
    root, credential = tmp_path / "slots", tmp_path / "credential"
    root.mkdir()
    if shared:
        credential.mkdir()
    machines = NspawnMachines(policy, Machined("unix:path=/nonexistent"))

    def act() -> list[str]:
        mount_tmpfs(Path("/etc"), 1 << 20)
        SETTINGS.parent.mkdir(parents=True)
        SETTINGS.write_text(text)
        answers = {machines.bind_at_boot("kube1", (root,), credential) for _ in range(2)}
        lines = [line for line in SETTINGS.read_text().splitlines() if "Bind" in line]
        return [line.replace(str(tmp_path), "") for line in lines] + [str(*answers)]

    return in_mount_namespace(act)


def test_a_machine_whose_root_is_the_hosts_equal_binds_it_at_boot(tmp_path: Path) -> None:
    assert bound(tmp_path, EQUAL, Machines()) == [
        "BindReadOnly=/slots",
        f"BindReadOnly=/credential:{CREDENTIAL_INSIDE}",
        "True",
    ]


@pytest.mark.parametrize("text", ["", "[Exec]\nPrivateUsers=pick\n", "[Exec]\n#PrivateUsers=no\n"])
def test_a_machine_that_may_have_users_of_its_own_does_not(tmp_path: Path, text: str) -> None:
    assert bound(tmp_path, text, Machines()) == ["BindReadOnly=/slots", "False"]


def test_a_machine_that_is_not_trusted_binds_nothing(tmp_path: Path) -> None:
    assert bound(tmp_path, EQUAL, Machines(mirror_only=("kube1",))) == ["False"]


def test_where_nothing_is_shared_nothing_is_bound_that_would_keep_it_from_booting(
    tmp_path: Path,
) -> None:
    assert bound(tmp_path, EQUAL, Machines(), shared=False) == ["BindReadOnly=/slots", "False"]
