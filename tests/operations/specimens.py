"""Operations as tests need them, and what a merge patch makes of a document (RFC 7386)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st

from hostsync.config import Config, flex_agent, hostsync_agent
from hostsync.membership import Membership
from hostsync.operations.operation import API_VERSION, KIND, Kind, Operation, Phase
from hostsync.operations.selection import Selector
from hostsync.trust import Trust

ME = Membership(machine="host-1", node="node-1")
CANARY = "CaNaRy0SeCrEt"
DIGEST = "ab" * 32
URL = f"https://releases.example.com/a-linux-amd64.tar.gz?sig={CANARY}"
UPGRADE = {"downloadURL": URL, "sha256": DIGEST}
EVERYTHING = Selector()

PROPERTY = settings(max_examples=80, deadline=None)
"""How hard a property is tried; a loaded machine is no reason to fail."""

TEXTS = st.text(max_size=30)
HOSTILE_TEXTS = st.one_of(
    TEXTS,
    st.sampled_from(
        [
            "", "\x00\x1b[2J", "a\nb\r\nc", "\u2028\u202e", "\ud800", "x" * 5000, URL,
            "Authorization: Bearer abc", "line\x85line", "é" * 600,
        ]
    ),
)  # fmt: skip


def an_operation(name: str = "op", /, **changes: object) -> Operation:
    """An upgrade of this host; its uid follows its name unless another is given."""
    given: dict[str, object] = {
        "name": name, "uid": f"uid-{name}", "version": "7", "generation": 1,
        "created": "2026-11-30T10:00:00Z", "kind": Kind.AGENT_UPGRADE, "machine": ME.machine,
        "parameters": dict(UPGRADE),
    }  # fmt: skip
    return Operation(**given | changes)  # type: ignore[arg-type]


def a_selection(name: str = "op", /, **changes: object) -> Operation:
    """An upgrade of every machine."""
    return an_operation(name, **{"machine": "", "selector": EVERYTHING} | changes)


def a_document(name: str = "op", /, **spec: object) -> dict[str, object]:
    """An operation as a person applies it."""
    wanted: dict[str, object] = {
        "machineRef": ME.machine,
        "operationKind": str(Kind.AGENT_UPGRADE),
        "parameters": dict(UPGRADE),
    }
    return {
        "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": wanted | spec,
    }  # fmt: skip


def stored(operation: Operation, status: Mapping[str, object]) -> Operation:
    """The operation as a server gives it once its status says this."""
    metadata = {
        "name": operation.name, "uid": operation.uid, "resourceVersion": operation.version,
        "generation": operation.generation, "creationTimestamp": operation.created,
    }  # fmt: skip
    spec: dict[str, object] = {
        "operationKind": str(operation.kind),
        "machineRef": operation.machine,
        "parameters": operation.parameters,
    }
    if operation.selector is not None:
        spec["machineSelector"] = {}
    return Operation.parse({"metadata": metadata, "spec": spec, "status": dict(status)})


def merged(target: object, patch: object) -> object:
    """RFC 7386, section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def a_config(**trust: object) -> Config:
    """hostsync and a foreign agent on one host that takes orders."""
    root, commands = Path("/usr/local/lib/hostsync"), Path("/usr/local/bin")
    agents = [hostsync_agent(root, commands), flex_agent(root.with_name("flex"), commands)]
    return Config(
        agents={agent.name: agent for agent in agents},
        membership=ME,
        trust=Trust(**trust),  # type: ignore[arg-type]
    )


PHASES = st.sampled_from([str(phase) for phase in Phase])
