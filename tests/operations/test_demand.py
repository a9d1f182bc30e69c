"""What an operation demands: whatever is wrong is InvalidParameters, and no query is repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hostsync.operations.demand import Demand, Reboot, Upgrade, demand_of
from hostsync.operations.operation import Kind
from hostsync.operations.report import Cause, Report, shown
from hostsync.workers import Machines
from tests.operations.specimens import (
    CANARY,
    DIGEST,
    EVERYTHING,
    HOSTILE_TEXTS,
    ME,
    PROPERTY,
    UPGRADE,
    URL,
    a_config,
    an_operation,
)

HTTP = f"http://127.0.0.1:8000/a.tar.gz?sig={CANARY}"


def of(**parameters: str) -> Demand | Report:
    return demand_of(an_operation(parameters=UPGRADE | parameters), a_config())


def refused(found: Demand | Report, cause: Cause = Cause.INVALID_PARAMETERS) -> str:
    """The message of a final refusal, which repeats no secret."""
    assert isinstance(found, Report)
    assert found.cause is cause
    assert found.is_final
    assert CANARY.lower() not in found.message.lower()
    assert found.message
    return found.message


def test_an_upgrade_is_read_with_all_its_parameters() -> None:
    found = of(sha256=f"sha256:{DIGEST.upper()}", agent="aks-flex-node", allowKnownBad="true")
    assert isinstance(found, Upgrade)
    assert (found.agent, found.digest.hex, found.allow_known_bad) == ("aks-flex-node", DIGEST, True)
    assert found.url.reveal() == URL
    assert CANARY not in repr(found)


def test_without_an_agent_the_one_that_the_membership_names_is_meant() -> None:
    assert of() == of(agent="hostsync")
    config = replace(a_config(), membership=replace(ME, agent="aks-flex-node"))
    found = demand_of(an_operation(), config)
    assert isinstance(found, Upgrade)
    assert found.agent == "aks-flex-node"


@pytest.mark.parametrize("name", ["downloadURL", "sha256"])
def test_a_parameter_that_is_missing_is_named(name: str) -> None:
    left = {key: value for key, value in UPGRADE.items() if key != name}
    assert name in refused(demand_of(an_operation(parameters=left), a_config()))
    assert name in refused(of(**{name: ""}))


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://example.com/a?sig={CANARY}", f"/etc/passwd?{CANARY}", f"file:///x?sig={CANARY}",
        f"https://user:{CANARY}@example.com/a", f"https://example.com/a#{CANARY}",
        f"https://example.com/{CANARY} b", f"https://example.com:99999/a?{CANARY}",
        f"https://[::zz]/a?{CANARY}", f"https://?sig={CANARY}", f"https:\\\\x?{CANARY}",
        f"https://example.com/a?sig={CANARY}\n", f"https://-x/{'a' * 9000}?{CANARY}",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_without_being_repeated(url: str) -> None:
    refused(of(downloadURL=url))


def test_clear_text_is_refused_unless_the_configuration_names_the_host() -> None:
    assert "127.0.0.1" in refused(of(downloadURL=HTTP))
    operation = an_operation(parameters=UPGRADE | {"downloadURL": HTTP})
    named = a_config(insecure_hosts=frozenset({"127.0.0.1"}))
    assert isinstance(demand_of(operation, named), Upgrade)
    other = a_config(insecure_hosts=frozenset({"127.0.0.2"}))
    refused(demand_of(operation, other))


@pytest.mark.parametrize(
    "digest",
    ["x" * 64, DIGEST[:-1], DIGEST + "0", "sha512:" + DIGEST, "sha256:", f"{DIGEST} {URL}"],
)
def test_a_digest_that_is_none_is_refused(digest: str) -> None:
    found = of(sha256=digest)
    assert isinstance(found, Report)
    assert found.cause is Cause.INVALID_PARAMETERS
    assert CANARY.lower() not in shown(found.message).lower()


def test_a_url_where_the_digest_belongs_is_not_repeated() -> None:
    found = of(sha256=URL, downloadURL=DIGEST)
    assert isinstance(found, Report)
    assert CANARY.lower() not in shown(found.message).lower()
    found = of(sha256=URL)
    assert isinstance(found, Report)
    assert CANARY.lower() not in shown(found.message).lower()


@pytest.mark.parametrize("agent", ["", "nobody", "../hostsync", "HOSTSYNC", "hostsync\n"])
def test_an_agent_that_is_not_configured_is_refused(agent: str) -> None:
    assert "hostsync" in refused(of(agent=agent))


@pytest.mark.parametrize("value", ["", "yes", "True", "1", " true"])
def test_a_flag_is_true_or_false_and_nothing_else(value: str) -> None:
    assert "allowKnownBad" in refused(of(allowKnownBad=value))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in list(Kind)[:2]])
def test_a_kind_that_is_not_carried_out_is_refused_naming_those_that_are(kind: Kind) -> None:
    found = demand_of(an_operation(kind=kind), a_config())
    message = refused(found, Cause.UNSUPPORTED_OPERATION)
    assert kind in message
    assert "AgentUpgrade" in message
    assert "NodeReboot" in message


def test_a_kind_that_nobody_knows_is_unsupported() -> None:
    refused(demand_of(an_operation(kind="Dance\x00"), a_config()), Cause.UNSUPPORTED_OPERATION)


@pytest.mark.parametrize("kind", [Kind.AGENT_UPGRADE, Kind.NODE_REBOOT])
def test_an_operation_with_two_aims_is_refused(kind: Kind) -> None:
    operation = an_operation(kind=kind, selector=EVERYTHING, parameters={})
    assert "machineSelector" in refused(demand_of(operation, a_config()))


def test_a_reboot_names_a_worker_machine_or_none() -> None:
    def reboot(**parameters: str) -> Demand | Report:
        return demand_of(an_operation(kind=Kind.NODE_REBOOT, parameters=parameters), a_config())

    assert reboot() == Reboot()
    assert reboot(machine="kube1") == Reboot(machine="kube1")
    for name in ("web1", "../kube1", "kube1;reboot", "kube1\n", "kube*", "kube/1", "k" * 200, "-x"):
        assert "machine" in refused(reboot(machine=name))


def test_the_machines_that_count_as_workers_are_the_configurations() -> None:
    config = replace(a_config(), machines=Machines(include=("web*",)))
    operation = an_operation(kind=Kind.NODE_REBOOT, parameters={"machine": "web1"})
    assert demand_of(operation, config) == Reboot(machine="web1")


@PROPERTY
@given(
    st.dictionaries(
        st.sampled_from(["downloadURL", "sha256", "agent", "allowKnownBad", "machine", "other"]),
        st.one_of(HOSTILE_TEXTS, st.sampled_from([URL, DIGEST, "true", "hostsync", "kube1", HTTP])),
    ),
    st.sampled_from([*Kind, "x"]),
)
def test_whatever_the_parameters_are_there_is_a_demand_or_a_refusal(
    parameters: dict[str, str], kind: str
) -> None:
    found = demand_of(an_operation(kind=kind, parameters=parameters), a_config())
    if isinstance(found, Report):
        assert found.cause in (Cause.INVALID_PARAMETERS, Cause.UNSUPPORTED_OPERATION)
        assert found.is_final
        assert CANARY.lower() not in shown(found.message).lower()
    else:
        assert kind == (Kind.NODE_REBOOT if isinstance(found, Reboot) else Kind.AGENT_UPGRADE)
