"""The sandbox's own certificate authority and the credentials that it signs.

Everything is made anew for each sandbox and lives as long as its directory. Time is an argument here too; a
certificate is valid from an hour before that moment, so that clocks which differ a little do no harm.
"""

import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK: Final = ("localhost", "127.0.0.1")

_BEFORE: Final = timedelta(hours=1)
_LIFETIME: Final = timedelta(days=30)  # longer than any trial; shorter than what somebody might come to rely on


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A certificate and its private key, both as PEM text."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Store it as ``<name>.crt`` and ``<name>.key``, for the owner's eyes, and give the two paths."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        write_privately(certificate, self.certificate)
        write_privately(key, self.key)
        return certificate, key


class Authority:
    """A certificate authority that signs for servers and for clients."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, now: datetime) -> None:
        self._key = key
        self._certificate = certificate
        self._now = now

    @classmethod
    def create(cls, name: str, *, now: datetime) -> Self:
        """Make a new authority called ``name``; ``now`` (with a time zone) dates all that it signs."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, ())
        certificate = (
            _unsigned(subject, subject, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate, now)

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate as PEM text: what a peer has to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, name: str, hosts: Iterable[str] = LOOPBACK) -> Credential:
        """Sign for a server that is reached by ``hosts``, which are DNS names or IP addresses.

        The credential may act as a client too: etcd shows its serving certificate to itself.
        """
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._sign(
            _subject(name, ()),
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
            alternatives,
        )

    def client(self, user: str, groups: Iterable[str] = ()) -> Credential:
        """Sign for a client that the API server will call ``user``, member of ``groups``."""
        return self._sign(_subject(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH], None)

    def _sign(
        self,
        subject: x509.Name,
        purposes: list[x509.ObjectIdentifier],
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Credential:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _unsigned(subject, self._certificate.subject, key.public_key(), self._now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(authority, critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Credential(certificate=signed.public_bytes(serialization.Encoding.PEM), key=_private_pem(key))


def signing_pair() -> tuple[bytes, bytes]:
    """Make the key pair for ServiceAccount tokens: private and public part as PEM text."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _private_pem(key), public


def write_privately(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _subject(name: str, groups: Iterable[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _LIFETIME)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
