"""A registry that cannot be reached, or that ended the connection: which it was, in one sentence."""

from __future__ import annotations

import errno
import ssl

import aiohttp

from gymctl.artefacts import tls
from gymctl.errors import PrerequisiteError

_CUT = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError)


class Unreachable(PrerequisiteError):
    """There was no connection, or it broke: the next one may hold. Who kept silent is not asked again."""


def unreachable(host: str, error: Exception, *, is_tls: bool) -> PrerequisiteError:
    """Without the library's own text: it may hold a URL with a key in it."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
    if isinstance(cause, ssl.SSLError | ssl.CertificateError):
        return tls.refusal(host, cause)
    hint = "check the name, the port and this machine's network and proxy"
    reason = getattr(error, "strerror", None) or type(error).__name__
    is_cut = isinstance(error, _CUT)
    if is_cut and getattr(error, "errno", None) in (None, errno.ECONNRESET, errno.EPIPE):
        reason = "it ended the connection"
        if is_tls:  # asyncio does not tell what TLS says then
            hint += f"; or it wants a certificate of yours: {tls.OWN.format(host=host)}"
    kind = PrerequisiteError if isinstance(error, TimeoutError) else Unreachable
    return kind(f"the registry {host} cannot be reached: {reason}", hint=hint)
