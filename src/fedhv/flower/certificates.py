"""A certificate authority, a server certificate and node keys, for trials. For production see the guide."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedhv.support.errors import InputError
from fedhv.support.files import make_folder, write_atomic

DAYS = 365


@dataclass(frozen=True)
class Certificates:
    """The paths of all files. Every node needs its own key and `ca.crt`, the server all other files except `ca.key`."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    nodes: tuple[Path, ...]


def make_certificates(folder: Path, hosts: Sequence[str], nodes: int, days: int = DAYS) -> Certificates:
    """Write new certificates and keys to a new folder.

    Args:
        folder: A new or empty folder.
        hosts: The names and addresses of the SuperLink.
        nodes: The number of node keys.
        days: The validity of the certificates, in days.
    """
    if nodes < 0 or days < 1:
        raise InputError(f"Expected 0 or more nodes and at least one day. Found {nodes} and {days}.")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"{folder} should be empty, because existing keys are not overwritten. Found files. Choose another folder."
        )
    names = [_name(host) for host in dict.fromkeys(hosts)]
    if not names:
        raise InputError("The server's certificate should be for at least one host. Found none. Use --host.")
    make_folder(folder)
    os.chmod(folder, 0o700)
    ca_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "FedHV trial CA")])
    ca = (
        _certificate(issuer, issuer, ca_key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    server = _server(names, server_key, issuer, ca_key, days)
    made = Certificates(
        folder / "ca.crt",
        folder / "ca.key",
        folder / "server.crt",
        folder / "server.key",
        tuple(folder / f"node-{k}" for k in range(nodes)),
    )
    _secret(made.ca_key, _pem(ca_key))
    _secret(made.server_key, _pem(server_key))
    write_atomic(made.ca, ca.public_bytes(Encoding.PEM))
    write_atomic(made.server, server.public_bytes(Encoding.PEM))
    for path in made.nodes:
        key = ec.generate_private_key(ec.SECP384R1())
        _secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        write_atomic(path.with_suffix(".pub"), key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return made


def renew_server(folder: Path, hosts: Sequence[str], days: int = DAYS) -> Certificates:
    """Replace the server's key and certificate in a folder of `make_certificates` by new ones of the same authority.

    Nodes notice nothing: they check the server's certificate with `ca.crt`, which stays.
    """
    names = [_name(host) for host in dict.fromkeys(hosts)]
    made = Certificates(folder / "ca.crt", folder / "ca.key", folder / "server.crt", folder / "server.key", ())
    try:
        ca = x509.load_pem_x509_certificate(made.ca.read_bytes())
        ca_key = load_pem_private_key(made.ca_key.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} should have the authority's ca.crt and ca.key. Found: {error}.") from None
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    new = folder / "server.key.new"
    new.unlink(missing_ok=True)
    _secret(new, _pem(key))
    os.replace(new, made.server_key)
    write_atomic(made.server, _server(names, key, ca.subject, ca_key, days).public_bytes(Encoding.PEM))
    return made


def _server(
    names: Sequence[x509.GeneralName],
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    ca_key: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.Certificate:
    """The server's certificate."""
    if not names:
        raise InputError("The server's certificate should be for at least one host. Found none; use --host.")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "FedHV trial SuperLink")])
    return (
        _certificate(subject, issuer, key, days)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks may differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    # A label has up to 63 characters, all of them together 253; a name may begin with "*." for all of one level.
    label = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    if len(host) > 253 or not re.fullmatch(rf"(\*\.)?{label}(\.{label})*\.?", host):
        raise InputError(f"A host should be a name or an address of the SuperLink, in ASCII. Found {host!r}.")
    return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read from its creation on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
