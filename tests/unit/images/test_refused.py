"""The engine's own words on TLS (26.1, 28.2) become one sentence and what to do."""

from __future__ import annotations

import pytest

from gymctl.images.refused import no_tls

HOST = "registry.example.com:5000"
FAILED = f'Error response from daemon: Get "https://{HOST}/v2/": tls: failed to verify certificate: x509: '


@pytest.mark.parametrize(
    ("said", "what", "hint"),
    [
        (f"{FAILED}certificate signed by unknown authority", "does not trust", f"certs.d/{HOST}/ca.crt"),
        (
            f"{FAILED}certificate has expired or is not yet valid: current time 2026-12-01",
            "has expired",
            "clock",
        ),
        (f"{FAILED}certificate is valid for a.example.com, not b.example.com", "another name", "subjectAlt"),
        (
            f"{FAILED}cannot validate certificate for 192.0.2.1 because it doesn't contain any IP SANs",
            "another name",
            "subjectAlt",
        ),
        (
            f'Get "https://{HOST}/v2/": http: server gave HTTP response to HTTPS client',
            "does not speak TLS",
            f"add {HOST} to `insecure-registries`",
        ),
        ("remote error: tls: certificate required", "wants a certificate of yours", "client.cert"),
        ("remote error: tls: internal error", "gets no TLS", "ca.crt"),
    ],
)
def test_words_of_an_engine_are_understood(said: str, what: str, hint: str) -> None:
    found = no_tls(HOST, said)
    assert found is not None
    assert what in found[0] and HOST in found[0] and hint in found[1]


@pytest.mark.parametrize(
    "said",
    [
        "unauthorized: authentication required",
        f"dial tcp {HOST}: connect: connection refused",
        "manifest for x509/tls not found: manifest unknown",
    ],
)
def test_what_is_not_about_tls_is_left_to_others(said: str) -> None:
    assert no_tls(HOST, said) is None
