"""Client certificates in every form they come in, and the assertions they sign."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from credential_shim.assertion import load, make_assertion
from credential_shim.errors import UsageError
from credential_shim.proofs import CERTIFICATE, FilePlace, Proof
from tests.credential_shim.entra_server import CLIENT, EntraServer, is_signed_by, unpad
from tests.credential_shim.slot_root import SlotRoot
from tests.credential_shim.test_process import Flags, assert_refused, token_of

PASSWORD = b"p@ss w\xc3\xb6rd"
AUDIENCE = "https://login.microsoftonline.com/t/oauth2/v2.0/token"


@dataclass(frozen=True, slots=True)
class Client:
    """A key, its certificate and the authority's."""

    key: rsa.RSAPrivateKey
    leaf: x509.Certificate
    authority: x509.Certificate

    def pem(
        self, form: PrivateFormat = PrivateFormat.PKCS8, password: bytes | None = None
    ) -> bytes:
        how: KeySerializationEncryption = NoEncryption()
        if password is not None:
            how = BestAvailableEncryption(password)
        return self.key.private_bytes(Encoding.PEM, form, how)

    @property
    def certificates(self) -> tuple[bytes, bytes]:
        return self.leaf.public_bytes(Encoding.PEM), self.authority.public_bytes(Encoding.PEM)

    def pkcs12(self, encryption: KeySerializationEncryption) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"client", self.key, self.leaf, [self.authority], encryption
        )


def sign(
    name: str, key: rsa.RSAPrivateKey, issuer: str, issuer_key: rsa.RSAPrivateKey
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    subject, above = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, issuer)
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(above)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(issuer_key, hashes.SHA256())
    )


@pytest.fixture(scope="module")
def client() -> Client:
    key, authority_key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    return Client(
        key,
        sign("client", key, "ca", authority_key),
        sign("ca", authority_key, "ca", authority_key),
    )


def refusal(raw: bytes, password: bytes | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        load(raw, password, "file /pem")
    assert caught.value.message.startswith(("file /pem", "the private key in file /pem"))
    return caught.value.message


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, PASSWORD])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (2, 0, 1)])
def test_pem_of_any_order_and_flavour_is_read(
    client: Client, form: PrivateFormat, password: bytes | None, order: tuple[int, ...]
) -> None:
    parts = (client.pem(form, password), *client.certificates)
    raw = b"Bag Attributes\n    friendlyName: x\n".join([b"", *(parts[each] for each in order)])
    found = load(raw, password, "file")
    assert found.certificate == client.leaf
    assert found.chain == (client.authority,)
    assert found.key.private_numbers() == client.key.private_numbers()


@pytest.mark.parametrize("password", [None, b"", PASSWORD])
def test_pkcs12_is_known_by_its_content(client: Client, password: bytes | None) -> None:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    found = load(client.pkcs12(encryption), password, "file")
    assert (found.certificate, found.chain) == (client.leaf, (client.authority,))


def test_pkcs12_with_a_sha_256_mac_is_read(client: Client) -> None:
    encryption = (
        PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(2048)
        .key_cert_algorithm(pkcs12.PBES.PBESv2SHA256AndAES256CBC)
        .hmac_hash(hashes.SHA256())
        .build(PASSWORD)
    )
    assert load(client.pkcs12(encryption), PASSWORD, "file").certificate == client.leaf


@pytest.mark.parametrize("kind", ["pkcs8", "pkcs1", "pkcs12"])
def test_a_missing_and_a_wrong_password_are_told_apart(client: Client, kind: str) -> None:
    raw = {
        "pkcs8": client.pem(PrivateFormat.PKCS8, PASSWORD) + client.certificates[0],
        "pkcs1": client.pem(PrivateFormat.TraditionalOpenSSL, PASSWORD) + client.certificates[0],
        "pkcs12": client.pkcs12(BestAvailableEncryption(PASSWORD)),
    }[kind]
    assert "needs a password" in refusal(raw)
    wrong = refusal(raw, b"canary")
    assert "password is wrong" in wrong
    assert "canary" not in wrong


def test_what_cannot_sign_is_refused(client: Client) -> None:
    other = rsa.generate_private_key(65537, 2048)
    curve = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    foreign = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert "no certificate for its private key" in refusal(foreign + client.certificates[0])
    assert "RSA" in refusal(curve + client.certificates[0])
    assert "0 private keys" in refusal(client.certificates[0])
    assert "2 private keys" in refusal(client.pem() + foreign)
    assert "no certificate" in refusal(client.pem())
    assert "neither" in refusal(b"hello")
    assert "neither" in refusal(b"")
    assert "damaged" in refusal(client.pem().replace(b"MII", b"AAA") + client.certificates[0])
    assert "password" in refusal(b"\x30\x03abc")


@pytest.mark.parametrize("chain", [False, True])
def test_an_assertion_is_what_entra_verifies(client: Client, tmp_path: Path, chain: bool) -> None:
    file = tmp_path / "pem"
    file.write_bytes(client.pem() + b"".join(client.certificates))
    file.chmod(0o600)
    proof = Proof(CERTIFICATE, FilePlace(str(file)), chain=chain)
    now = dt.datetime.now(dt.UTC).timestamp()
    one, other = (make_assertion(proof, CLIENT, AUDIENCE, now) for _ in range(2))
    assert is_signed_by(one, client.leaf, AUDIENCE)
    assert not is_signed_by(one[:-4] + "AAAA", client.leaf, AUDIENCE)
    header = json.loads(unpad(one.split(".")[0]))
    assert len(header.get("x5c", [])) == (2 if chain else 0)
    ids = {json.loads(unpad(each.split(".")[1]))["jti"] for each in (one, other)}
    assert len(ids) == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pem", "pkcs12"])
def test_a_certificate_gets_a_token_and_a_wrong_password_nothing(
    root: SlotRoot,
    entra: EntraServer,
    client_flags: Flags,
    client: Client,
    tmp_path: Path,
    kind: str,
) -> None:
    line = assert_refused(root.run("get-token", *client_flags, "--client-certificate", "/x"), 2)
    assert "/x cannot be read" in line
    root.lend_cryptography("blue")
    entra.certificates.append(client.leaf)
    file, password = tmp_path / "client", tmp_path / "password"
    encrypted = client.pem(PrivateFormat.PKCS8, PASSWORD) + client.certificates[0]
    file.write_bytes(
        encrypted if kind == "pem" else client.pkcs12(BestAvailableEncryption(PASSWORD))
    )
    password.write_bytes(PASSWORD + b"\n")
    for each in (file, password):
        each.chmod(0o600)
    words = ["get-token", *client_flags, "--client-certificate", str(file)]
    words += ["--client-certificate-password-file", str(password)]
    assert token_of(root.run(*words)) == entra.issued(1)
    assert token_of(root.run(*words)) == entra.issued(1)
    password.write_text("canary")
    line = assert_refused(root.run(*words), 2)
    assert "password is wrong" in line
    assert "canary" not in line
