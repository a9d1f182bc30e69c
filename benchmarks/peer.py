"""A minimal exec plugin on azure-identity, in a virtual environment of its own, to compare with."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

PLUGIN = """\
import json, sys
from datetime import datetime, timezone
from azure.identity import ClientSecretCredential

tenant, client, secret_file, authority, ca_file, scope = sys.argv[1:]
with open(secret_file) as file:
    secret = file.read().strip()
credential = ClientSecretCredential(
    tenant, client, secret, authority=authority, disable_instance_discovery=True,
    connection_verify=ca_file,
)
token = credential.get_token(scope)
expires = datetime.fromtimestamp(token.expires_on, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
print(json.dumps({
    "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
    "status": {"token": token.token, "expirationTimestamp": expires},
}))
"""


def make_peer(directory: Path) -> tuple[str, str] | str:
    """Return interpreter and script of the peer, or why there is none."""
    place = directory / "peer"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "azure-identity"]
    done = subprocess.run(install, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return f"azure-identity cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    script = place / "plugin.py"
    script.write_text(PLUGIN)
    return str(python), str(script)
