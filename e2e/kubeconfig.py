"""The kubeconfig that a worker machine's kubelet has, exec credential plugin and all."""

import base64
import json

from e2e.world.documents import Document
from e2e.world.identity import AKS_SERVER

SERVER = "https://kube-api.lab:6443"
SHIM = "/usr/local/bin/hostsync-credential"
SHIM_ARGUMENTS = ("get-token", "--server-id", AKS_SERVER, "--login", "msi")


def kubeconfig(authority_pem: bytes) -> str:
    """Return the file's text; JSON is YAML to kubectl."""
    cluster: Document = {
        "server": SERVER,
        "certificate-authority-data": base64.b64encode(authority_pem).decode(),
    }
    plugin: Document = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": SHIM,
        "args": list(SHIM_ARGUMENTS),
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }
    document: Document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "kubelet", "user": {"exec": plugin}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "kubelet"}}],
        "current-context": "lab",
    }
    return json.dumps(document, indent=2) + "\n"
