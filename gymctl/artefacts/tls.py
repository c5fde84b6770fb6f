"""TLS with a registry: whose CAs count, Docker's for it and the machine's, and why there is none."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from gymctl.errors import ConfigError, PrerequisiteError
from gymctl.images.secrets import OWN_CA_VARIABLE

CERTS = Path("/etc/docker/certs.d")
OWN = f"{CERTS}/{{host}}/client.cert and client.key"
_EXPIRED, _TOO_EARLY = 10, 9
_OTHER_NAME = (62, 64)
_UNKNOWN_CA = (2, 18, 19, 20, 21)
"""X509_V_ERR_… of OpenSSL."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
_WANTS_OURS = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE")


def context(host: str, environ: Mapping[str, str] = os.environ) -> ssl.SSLContext:
    """The machine's CAs (SSL_CERT_FILE), those of GYMCTL_CA_BUNDLE, and what Docker has for this registry: a
    CA in each `*.crt`, our own certificate in `*.cert` with its `*.key`.

    Raises ConfigError for a GYMCTL_CA_BUNDLE that is none.
    """
    made = ssl.create_default_context()
    # Python 3.13 refuses CAs without an extension that few companies' have; the engine does not ask for it.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if bundle := environ.get(OWN_CA_VARIABLE):
        try:
            made.load_verify_locations(cafile=Path(bundle).expanduser())
        except (OSError, ssl.SSLError):
            what, hint = f"no CA bundle: {bundle}", "leave it out, or name a PEM file"
            raise ConfigError(what, where=OWN_CA_VARIABLE, hint=hint) from None
    for folder in _folders(host, environ):
        for file in sorted(folder.glob("*.crt")) if folder.is_dir() else ():
            with contextlib.suppress(OSError, ssl.SSLError):
                made.load_verify_locations(cafile=file)
        for file in sorted(folder.glob("*.cert")) if folder.is_dir() else ():
            with contextlib.suppress(OSError, ssl.SSLError):
                made.load_cert_chain(file, file.with_suffix(".key"), password="")
    return made


def _folders(host: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where engines look: the usual one, the one without root, Docker Desktop."""
    home = Path.home()
    own = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return CERTS / host, own / "docker" / "certs.d" / host, home / ".docker" / "certs.d" / host


def refusal(host: str, error: ssl.SSLError | ssl.CertificateError) -> PrerequisiteError:
    """Why there is no TLS, and what to do about just that."""
    code, reason = getattr(error, "verify_code", 0), str(getattr(error, "reason", "") or "")
    ours = f"{CERTS}/{host}"
    if code in (_EXPIRED, _TOO_EARLY):
        word = "has expired" if code == _EXPIRED else "does not hold yet"
        what, hint = f"{word}", "its owner renews it; or this machine's clock is wrong"
    elif code in _OTHER_NAME:
        what = "is made for another name"
        hint = "use the name that it has, or let its owner have one made for this name (subjectAltName)"
    elif code in _UNKNOWN_CA:
        what = "is signed by a CA that is not trusted here"
        hint = f"put that CA into {ours}/ca.crt, where the engine looks too"
        hint += f"; SSL_CERT_FILE and {OWN_CA_VARIABLE} count for gymctl alone"
    elif any(word in reason for word in _NO_TLS):
        hint = "--plain-http does without; the engine then needs it in `insecure-registries`"
        return PrerequisiteError(f"the registry {host} does not speak TLS", hint=hint)
    elif any(word in reason for word in _WANTS_OURS):
        what = f"the registry {host} ended the connection"
        return PrerequisiteError(what, hint=f"it wants a certificate of yours: {OWN.format(host=host)}")
    else:
        said = getattr(error, "verify_message", "") or reason.replace("_", " ").lower() or "no TLS"
        what, hint = f"is not accepted: {said}", f"CAs in {ours}/ca.crt count, and SSL_CERT_FILE"
    return PrerequisiteError(f"the certificate of the registry {host} {what}", hint=hint)
