"""What the sandbox's authority signs is what TLS and the API server understand."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import NameOID

from clusterconform.sandbox.certificates import Authority, Credential, signing_pair

NOW = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 - TLS judges by real time


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("test", now=NOW)


def contexts(
    folder: Path, authority: Authority, server: Credential, client: Credential
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    trusted = authority.certificate.decode()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=trusted)
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_cert_chain(*server.write(folder, "server"))
    calling = ssl.create_default_context(cadata=trusted)
    calling.load_cert_chain(*client.write(folder, "client"))
    return serving, calling


def shake_hands(serving: ssl.SSLContext, calling: ssl.SSLContext, host: str) -> dict[str, object]:
    """Complete a handshake in memory and give the client's certificate as the server sees it."""
    upward, downward = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(upward, downward, server_side=True)
    client = calling.wrap_bio(downward, upward, server_hostname=host)
    pending = [client, server]
    for _ in range(10):
        for side in list(pending):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            pending.remove(side)
    assert not pending
    return dict(server.getpeercert() or {})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_server_and_client_accept_each_other(tmp_path: Path, authority: Authority, host: str) -> None:
    serving, calling = contexts(tmp_path, authority, authority.server("api"), authority.client("jane", ["devs"]))
    seen = shake_hands(serving, calling, host)
    assert seen["subject"] == ((("organizationName", "devs"),), (("commonName", "jane"),))


def test_a_server_is_not_accepted_under_another_name(tmp_path: Path, authority: Authority) -> None:
    serving, calling = contexts(tmp_path, authority, authority.server("api"), authority.client("jane"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(serving, calling, "example.com")


def test_a_client_of_another_authority_is_not_accepted(tmp_path: Path, authority: Authority) -> None:
    stranger = Authority.create("test", now=NOW).client("jane")
    serving, calling = contexts(tmp_path, authority, authority.server("api"), stranger)
    with pytest.raises(ssl.SSLError):
        shake_hands(serving, calling, "localhost")


def test_a_user_may_be_in_several_groups(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.client("jane", ["devs", "ops"]).certificate)
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [group.value for group in groups] == ["devs", "ops"]


def test_credentials_are_valid_now_and_not_for_long(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.client("jane").certificate)
    assert certificate.not_valid_before_utc < NOW < certificate.not_valid_after_utc
    assert certificate.not_valid_after_utc - NOW <= timedelta(days=30)


def test_keys_are_for_their_owners_eyes(tmp_path: Path, authority: Authority) -> None:
    _, key = authority.client("jane").write(tmp_path, "jane")
    assert key.stat().st_mode & 0o777 == 0o600


def test_the_signing_pair_belongs_together() -> None:
    private, public = signing_pair()
    assert load_pem_private_key(private, None).public_key() == load_pem_public_key(public)
