"""MachineOperations as an operator of the lab's cluster sees them: by a real kubectl."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.kubeconfig import SERVER
from e2e.lab import MACHINE_ROOT
from e2e.node import CONFIG, Node
from e2e.records import Completed

MANIFESTS = Path(__file__).parents[1] / "deploy"
KUBECONFIG = "/etc/hostsync/kubeconfig"
AUTHORITY = "/etc/ssl/certs/ca-certificates.crt"
MACHINE_REF = "kube1"
SIGNATURE = "canary-4711-qed"
"""What signs the URLs of releases; it must turn up nowhere."""
OPERATIONS = f"""{CONFIG}
[operations]
machine = "{MACHINE_REF}"
"""
END_SECONDS = 300
WORDS = "--kubeconfig=/var/lib/kubelet/kubeconfig"


class Operations:
    """The operations of the lab's cluster. kubectl runs in the machine, as kubelet's does."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def prepare(self) -> None:
        """Define the kind, and give the daemon its credential and its orders to take orders."""
        self.apply_file(MANIFESTS / "crd.yaml")
        where = ("--path", KUBECONFIG, "--server", SERVER, "--ca-file", AUTHORITY, "--replace")
        written = self._node.hostsync("kubeconfig", *where, "--", "--login", "msi")
        assert written.code == 0, written.err
        self._node.lab.host("systemctl", "restart", "hostsync.service")

    def kubectl(self, *words: str, check: bool = True, timeout: float = 60) -> Completed:
        """Run kubectl in the machine."""
        return self._node.lab.machine(
            "/usr/local/bin/kubectl", WORDS, *words, check=check, timeout=timeout
        )

    def apply_file(self, path: Path) -> None:
        """Apply a manifest as it is; the lab's API publishes no schema to validate it against."""
        self._node.lab.write(f"{MACHINE_ROOT}/root/{path.name}", path.read_bytes())
        self.kubectl("apply", "--validate=false", "-f", f"/root/{path.name}")

    def order(self, name: str, kind: str, parameters: Mapping[str, str], **spec: object) -> None:
        """Apply an operation; `spec` adds to its spec, and None takes machineRef out."""
        whole = {"machineRef": MACHINE_REF, "operationKind": kind, "parameters": parameters, **spec}
        wanted = {key: value for key, value in whole.items() if value is not None}
        document = {
            "apiVersion": "unbounded-cloud.io/v1alpha3",
            "kind": "MachineOperation",
            "metadata": {"name": name},
            "spec": wanted,
        }
        self._node.lab.write(f"{MACHINE_ROOT}/root/{name}.json", json.dumps(document))
        self.kubectl("apply", "--validate=false", "-f", f"/root/{name}.json")

    def upgrade(self, name: str, release: Path, **more: object) -> None:
        """Order a release of the depot by a signed URL."""
        extra = {str(k): str(v) for k, v in more.items() if k != "spec"}
        spec = more.get("spec") or {}
        assert isinstance(spec, dict)
        self.order(name, "AgentUpgrade", {**self.parameters(release), **extra}, **spec)

    def parameters(self, release: Path) -> dict[str, str]:
        """The parameters that order a release."""
        digest = hashlib.sha256(release.read_bytes()).hexdigest()
        url = f"{self._node.lab.publish(release)}?sv=2024&sig={SIGNATURE}"
        return {"downloadURL": url, "sha256": digest}

    def get(self, name: str) -> dict[str, Any]:
        """An operation as the API has it."""
        document: dict[str, Any] = json.loads(
            self.kubectl("get", "machineoperation", name, "--output=json").out
        )
        return document

    def await_phase(self, name: str, phase: str, timeout: float = END_SECONDS) -> dict[str, Any]:
        """Wait until an operation's phase is that, by kubectl's own watch, and return it."""
        condition = f"--for=jsonpath={{.status.phase}}={phase}"
        done = self.kubectl(
            "wait", condition, f"machineoperation/{name}", f"--timeout={timeout:.0f}s", check=False,
            timeout=timeout + 20,
        )  # fmt: skip
        found = self.get(name)
        assert done.code == 0, f"{done.err} {found.get('status')}"
        return found

    def await_end(self, name: str) -> tuple[str, str, str]:
        """Wait until an operation is over: its phase, the reason and the message."""
        phase = f"kubectl {WORDS} get machineoperation {name} -o jsonpath='{{.status.phase}}'"
        loop = f"until GOMAXPROCS=1 {phase} | grep -qE 'Complete|Failed'; do sleep 1; done"
        self._node.lab.machine("/bin/bash", "-c", loop, timeout=END_SECONDS)
        status = self.get(name)["status"]
        (condition,) = [each for each in status["conditions"] if each["type"] == "Completed"]
        assert (condition["status"] == "True") == (status["phase"] == "Complete")
        assert status["completedAt"]
        return status["phase"], condition["reason"], status["message"]

    def follow(self, name: str) -> str:
        """Have every status of an operation written down from now on; where."""
        record = f"/root/{name}.statuses"
        unit = f"follow-{name}"
        words = (
            f"exec kubectl {WORDS} get machineoperation --watch "
            f"--field-selector=metadata.name={name} -o json >{record}"
        )
        self._node.lab.host(
            "systemd-run", "--machine=kube1", "--quiet", f"--unit={unit}", "/bin/bash", "-c", words
        )
        return f"{MACHINE_ROOT}{record}"
