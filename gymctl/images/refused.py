"""What an engine says when it gets no TLS with a registry, and what makes it trust that."""

from __future__ import annotations

_FILE = "/etc/docker/certs.d/{host}/ca.crt"
_DAEMON = "/etc/docker/daemon.json"


def no_tls(host: str, said: str) -> tuple[str, str] | None:
    """What is wrong between the engine and a registry, and a hint; None: something else is.

    `said`: the lines of `docker push` or `docker pull`.
    """
    said = said.lower()
    if "server gave http response to https client" in said:
        what = f"{host} does not speak TLS, and the engine wants it"
        return what, f"add {host} to `insecure-registries` in {_DAEMON}, and restart the engine"
    if "x509:" not in said and "tls:" not in said:
        return None
    if "has expired or is not yet valid" in said:
        return (
            f"the certificate of {host} has expired",
            "its owner renews it; or this machine's clock is wrong",
        )
    if "certificate is valid for" in said or "sans" in said or "not valid for any names" in said:
        what = f"the certificate of {host} is made for another name"
        return what, "use the name that it has, or let its owner have one made for this name (subjectAltName)"
    if "unknown authority" in said or "failed to verify certificate" in said:
        what = f"the engine does not trust the certificate of {host}"
        return what, f"put its CA into {_FILE.format(host=host)}; the engine need not be restarted"
    if "certificate required" in said or "handshake failure" in said or "bad certificate" in said:
        what = f"{host} wants a certificate of yours from the engine"
        return what, f"client.cert and client.key beside {_FILE.format(host=host)}"
    return f"the engine gets no TLS with {host}", f"its CA belongs into {_FILE.format(host=host)}"
