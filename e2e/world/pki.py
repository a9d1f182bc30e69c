"""The lab's certificate authority and keys, made afresh for each lab."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority that signs the certificates of servers and of clients."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate that clients must trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, names: Sequence[str], addresses: Sequence[str]) -> bytes:
        """Return a new key and its certificate for a server with these names, as one PEM."""
        alternatives = [x509.DNSName(name) for name in names] + [
            x509.IPAddress(ipaddress.ip_address(address)) for address in addresses
        ]
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(names[0], self.certificate.subject, key.public_key()).add_extension(
            x509.SubjectAlternativeName(alternatives), critical=False
        )
        return self._sign(draft, key, ExtendedKeyUsageOID.SERVER_AUTH)

    def issue_client(self, user: str) -> bytes:
        """Return a new key and its certificate for a user of the API, as one PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(user, self.certificate.subject, key.public_key())
        return self._sign(draft, key, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self,
        draft: x509.CertificateBuilder,
        key: ec.EllipticCurvePrivateKey,
        usage: x509.ObjectIdentifier,
    ) -> bytes:
        certificate = (
            draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        return private_pem(key) + certificate.public_bytes(serialization.Encoding.PEM)


def make_authority() -> Authority:
    """Return a new authority, valid from an hour ago."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("hostsync lab")
    certificate = (
        _draft("hostsync lab", name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_CA_USAGE, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate=certificate, key=key)


def make_signing_key() -> rsa.RSAPrivateKey:
    """Return a new 2048 bit RSA key, as Entra signs with."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def private_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    """Return the unencrypted PKCS#8 form of `key`."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_signing_key(path: Path) -> rsa.RSAPrivateKey:
    """Return the RSA key stored at `path`; raises ValueError for any other kind."""
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError(f"{path}: an RSA key is needed to sign RS256 tokens")
    return key


_CA_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _draft(
    subject: str, issuer: x509.Name, public: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )
