"""A certificate authority for tests, and servers' certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """PEM files."""

    file: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.file, self.key)
        return made


class Authority:
    """One that nobody trusts unless told to."""

    def __init__(self, folder: Path, name: str = "Example CA") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        # As many companies' are: without an extension for what its key may do.
        made = _builder(self._name, self._name, self._key, days=2).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = folder / "ca.crt"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def signed(self, name: str, *, days: int = 2) -> Certificate:
        """A certificate for an address or a host name; days below 0: one that ended before now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry")])
        try:
            known: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            known = x509.DNSName(name)
        made = _builder(subject, self._name, key, days=days).add_extension(
            x509.SubjectAlternativeName([known]), critical=False
        )
        stem = f"{name}{days}".replace(":", "-")
        found = Certificate(self._folder / f"{stem}.cert", self._folder / f"{stem}.key")
        found.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        found.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return found


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 9 * DAY)
        .not_valid_after(now + days * DAY)
    )
