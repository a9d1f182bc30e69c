"""From settings to a client of Microsoft Entra: which cloud, tenant and client, and what proof."""

from credential_shim import proofs
from credential_shim.errors import UsageError
from credential_shim.identity import Tenant
from credential_shim.layers import CLIENT_ID_VARIABLES, Layers
from credential_shim.proofs import (
    CERTIFICATE,
    FEDERATED,
    SECRET,
    ConfiguredPlace,
    DescriptorPlace,
    FilePlace,
    Proof,
    VariablePlace,
)

CLOUDS = {
    "AzurePublicCloud": "login.microsoftonline.com",
    "AzureCloud": "login.microsoftonline.com",
    "AzureUSGovernment": "login.microsoftonline.us",
    "AzureUSGovernmentCloud": "login.microsoftonline.us",
    "AzureChinaCloud": "login.partner.microsoftonline.cn",
    "BleuCloud": "login.sovcloud-identity.fr",
    "DelosCloud": "login.sovcloud-identity.de",
    "GovSGCloud": "login.sovcloud-identity.sg",
}
"""Names of clouds (compared without case) and the authority of each."""
OTHER_AUTHORITIES = ("login.chinacloudapi.cn", "login.windows.net")

TENANT_VARIABLE = "AZURE_TENANT_ID"
AUTHORITY_VARIABLE = "AZURE_AUTHORITY_HOST"
SECRET_VARIABLES = ("AZURE_CLIENT_SECRET", "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET")
CERTIFICATE_VARIABLES = (
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE",
)
PASSWORD_VARIABLES = (
    "AZURE_CLIENT_CERTIFICATE_PASSWORD",
    "AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE_PASSWORD",
)
FEDERATED_VARIABLE = "AZURE_FEDERATED_TOKEN_FILE"


def tenant_of(layers: Layers, login: str) -> Tenant:
    """Return the client that the settings name for ``spn`` or ``workloadidentity``.

    Reads no secret. Raises UsageError naming what is missing or contradicts itself.
    """
    client_id = layers.take("client_id", *CLIENT_ID_VARIABLES)
    tenant_id = layers.take("tenant_id", TENANT_VARIABLE)
    if client_id is None or tenant_id is None:
        missing = "--client-id" if client_id is None else "--tenant-id"
        raise UsageError(f"{missing} is required for login mode {login}")
    if not tenant_id.replace("-", "").replace(".", "").isalnum():
        raise UsageError("--tenant-id must be the id or the domain of a tenant")
    proof = _principal(layers) if login == "spn" else _federated(layers)
    return Tenant(
        authority=_authority(layers), tenant_id=tenant_id, client_id=client_id, proof=proof
    )


def _principal(layers: Layers) -> Proof:
    chosen = layers.take_one(
        {
            "client_secret_file": (),
            "client_secret_fd": (),
            "client_secret": SECRET_VARIABLES,
            "client_certificate": CERTIFICATE_VARIABLES,
        }
    )
    match chosen:
        case None:
            raise UsageError(
                "login mode spn needs a secret (--client-secret-file) or a certificate "
                "(--client-certificate)"
            )
        case ("client_secret_file", path):
            return Proof(SECRET, FilePlace(path))
        case ("client_secret_fd", number):
            return Proof(SECRET, DescriptorPlace(number))
        case ("client_certificate", path):
            chain = layers.take("send_certificate_chain") == "true"
            return Proof(CERTIFICATE, FilePlace(path), password=_password(layers), chain=chain)
        case (name, value):
            return Proof(SECRET, _inline(layers, name, value, "--client-secret-file"))


def _password(layers: Layers) -> "proofs.Place | None":
    chosen = layers.take_one(
        {
            "client_certificate_password_file": (),
            "client_certificate_password": PASSWORD_VARIABLES,
        }
    )
    match chosen:
        case None:
            return None
        case ("client_certificate_password_file", path):
            return FilePlace(path)
        case (name, value):
            return _inline(layers, name, value, "--client-certificate-password-file")


def _inline(layers: Layers, name: str, value: str, better: str) -> "proofs.Place":
    """A secret that stands in the configuration file, or in a variable, which is warned about."""
    origin = layers.origins[name]
    if layers.file is not None and origin == "the configuration file":
        return ConfiguredPlace(layers.file, name)
    layers.notes.append(
        f"a secret is in {origin}, which other programs inherit; prefer {better} or the "
        "configuration file"
    )
    return VariablePlace(origin, value)


def _federated(layers: Layers) -> Proof:
    path = layers.take("federated_token_file", FEDERATED_VARIABLE)
    if path is None:
        raise UsageError("login mode workloadidentity needs --federated-token-file")
    return Proof(FEDERATED, FilePlace(path, private=False))


def _authority(layers: Layers) -> str:
    """Return the origin of the authority.

    One that is not Microsoft's has to be named explicitly: a leaked variable must not have a
    secret sent elsewhere.
    """
    cloud = layers.take("cloud")
    hosts = {name.lower(): host for name, host in CLOUDS.items()}
    if cloud is not None and cloud.lower() not in hosts:
        raise UsageError(f"--environment names no known cloud (known: {', '.join(CLOUDS)})")
    named = layers.take("authority_host", AUTHORITY_VARIABLE)
    if named is None:
        return f"https://{hosts[(cloud or 'AzurePublicCloud').lower()]}"
    host = _host_of(named)
    known = {*CLOUDS.values(), *OTHER_AUTHORITIES}
    if layers.origins["authority_host"] not in _EXPLICIT and host not in known:
        raise UsageError(
            f"{AUTHORITY_VARIABLE} names no authority of Microsoft's; name another one with "
            "--authority-host or in the configuration file"
        )
    if cloud is not None and host in CLOUDS.values() and host != hosts[cloud.lower()]:
        raise UsageError("--environment and the authority host name different clouds")
    return f"https://{host}"


_EXPLICIT = ("the command line", "the configuration file")


def _host_of(url: str) -> str:
    """Return HOST[:PORT] of ``https://HOST[:PORT][/]`` in lower case; raises UsageError."""
    host = url.removeprefix("https://").removesuffix("/").lower()
    name, colon, port = host.partition(":")
    plain = name.replace("-", "").replace(".", "").isalnum() and not name.startswith(("-", "."))
    valid_port = not colon or (port.isdecimal() and 0 < int(port[:9]) < 65536)
    if not url.startswith("https://") or not plain or not valid_port:
        raise UsageError("the authority host must be https://HOST[:PORT]")
    return host
