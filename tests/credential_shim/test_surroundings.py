"""What surrounds a run changes no mode and costs no token: variables, HOME, an unfit cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.credential_shim.imds_server import ImdsServer
from tests.credential_shim.slot_root import SERVER_ID, SlotRoot
from tests.credential_shim.test_process import Flags, token_of

pytestmark = pytest.mark.slow

ARC_VARIABLES = {
    "IDENTITY_ENDPOINT": "http://127.0.0.1:9/metadata/identity/oauth2/token",
    "IMDS_ENDPOINT": "http://127.0.0.1:9",
    "IDENTITY_HEADER": "header",
    "MSI_ENDPOINT": "http://127.0.0.1:9/token",
    "MSI_SECRET": "secret",
}


def test_variables_of_other_platforms_lead_nowhere_else(
    root: SlotRoot, imds: ImdsServer, flags: Flags
) -> None:
    """Azure Arc's agent and App Service set them; only a flag, the file or AAD_* choose a mode."""
    result = root.run("get-token", *flags, environ=ARC_VARIABLES)
    assert token_of(result) == imds.issued(1)
    assert result.err == ""
    assert imds.seen[0].query["api-version"] == "2018-02-01"
    assert "x-identity-header" not in imds.seen[0].headers


@pytest.mark.parametrize("home", [{}, {"HOME": ""}, {"HOME": "/nonexistent"}, {"HOME": "relative"}])
def test_home_is_not_needed(
    root: SlotRoot, imds: ImdsServer, flags: Flags, home: dict[str, str]
) -> None:
    assert token_of(root.run("get-token", *flags, environ=home)) == imds.issued(1)


@pytest.mark.parametrize(
    "kind", ["a file", "beneath a file", "of /proc", "open to others", "a link"]
)
def test_a_cache_that_cannot_be_used_costs_no_token(
    root: SlotRoot, imds: ImdsServer, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "unfit"
    match kind:
        case "a file":
            place.touch()
        case "beneath a file":
            place.touch()
            place /= "cache"
        case "of /proc":
            place = Path("/proc/self/cache")
        case "open to others":
            place.mkdir(mode=0o755)
        case "a link":
            (tmp_path / "real").mkdir(mode=0o700)
            place.symlink_to("real")
    words = ("--no-config", "--server-id", SERVER_ID, "--identity-endpoint", imds.url)
    for number in (1, 2):
        result = root.run("get-token", *words, "--cache-dir", str(place))
        assert token_of(result) == imds.issued(number)
