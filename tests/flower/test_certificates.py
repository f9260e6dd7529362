"""The trial's certificates are what a TLS library accepts, for the hosts they name and no others."""

from __future__ import annotations

import socket
import ssl
import stat
import threading

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedhv.flower.certificates import make_certificates, renew_server
from fedhv.support.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("keys") / "certificates", ["127.0.0.1", "superlink.test"], 2)


def handshake(made, name: str, authority) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(made.server, made.server_key)
    ours, theirs = socket.socketpair()

    def serve():
        try:
            server.wrap_socket(ours, server_side=True).close()
        except (ssl.SSLError, OSError):
            ours.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client = ssl.create_default_context(cafile=str(authority))
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        client.wrap_socket(theirs, server_hostname=name).close()
    finally:
        theirs.close()
        thread.join(5)


def test_the_server_is_trusted_under_its_names_alone(made):
    handshake(made, "127.0.0.1", made.ca)
    handshake(made, "superlink.test", made.ca)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, "elsewhere.test", made.ca)


def test_another_authority_is_not_trusted(made, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made, "127.0.0.1", make_certificates(tmp_path / "other", ["127.0.0.1"], 0).ca)


def test_a_new_server_certificate_is_trusted_by_nodes_that_have_the_old_authority(tmp_path):
    made = make_certificates(tmp_path / "c", ["127.0.0.1"], 1)
    old = made.server.read_bytes(), made.server_key.read_bytes(), made.ca.read_bytes(), made.nodes[0].read_bytes()
    renew_server(tmp_path / "c", ["127.0.0.1", "superlink.test"])
    new = made.server.read_bytes(), made.server_key.read_bytes(), made.ca.read_bytes(), made.nodes[0].read_bytes()
    assert [a == b for a, b in zip(old, new, strict=True)] == [False, False, True, True]
    assert stat.S_IMODE(made.server_key.stat().st_mode) == 0o600
    handshake(made, "superlink.test", made.ca)
    made.ca_key.unlink()
    with pytest.raises(InputError, match=r"should have the authority's ca\.crt and ca\.key"):
        renew_server(tmp_path / "c", ["127.0.0.1"])


def test_every_node_has_a_key_of_its_own(made):
    keys = [load_ssh_private_key(path.read_bytes(), password=None) for path in made.nodes]
    assert all(isinstance(key, ec.EllipticCurvePrivateKey) for key in keys)
    publics = [load_ssh_public_key(path.with_suffix(".pub").read_bytes()) for path in made.nodes]
    assert [key.public_key() for key in keys] == publics
    assert publics[0] != publics[1]


def test_nobody_else_can_read_the_keys(made):
    for path in (made.ca_key, made.server_key, *made.nodes):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_are_never_overwritten(made):
    before = made.ca_key.read_bytes()
    with pytest.raises(InputError, match="should be empty"):
        make_certificates(made.ca.parent, ["127.0.0.1"], 1)
    assert made.ca_key.read_bytes() == before


def test_the_command_makes_them(command, tmp_path):
    outcome = command("flower", "certificates", "keys", "--host", "10.0.0.5", "--nodes", 2)
    assert outcome.code == 0
    assert {path.name for path in (tmp_path / "keys").iterdir()} == {
        "ca.crt", "ca.key", "server.crt", "server.key", "node-0", "node-0.pub", "node-1", "node-1.pub",
    }  # fmt: skip
    again = command("flower", "certificates", "keys")
    assert again.code == 2
    assert "not overwritten" in again.err


def test_a_long_host_name_is_a_name(tmp_path):
    host = ".".join(["superlink", "a" * 63, "b" * 63, "test"])
    handshake(made := make_certificates(tmp_path / "keys", [host], 0), host, made.ca)


@pytest.mark.parametrize("host", ["", "a" * 64 + ".org", "two words", "höst.test", "a..b", ".".join(["ab"] * 100)])
def test_a_host_that_is_no_name_is_refused_before_anything_is_made(host, tmp_path):
    with pytest.raises(InputError, match="A host should be a name or an address"):
        make_certificates(tmp_path / "keys", ["127.0.0.1", host], 0)
    assert not (tmp_path / "keys").exists()
