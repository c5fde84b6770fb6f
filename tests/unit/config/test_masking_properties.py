"""Masking never shows a secret and never alters anything else, whatever the texts are."""

from __future__ import annotations

import random
import string
import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gymctl.config.tree.masking import MASK, mask, redact, secrets_of

SECRETS = st.text("abc.*+?[](){}|^$\\/ #'\"\n\tß🔑", min_size=6, max_size=20).filter(
    lambda text: len(text.strip()) >= 6 and not text.startswith("${") and text not in MASK * 9
)
PLAIN_KEYS = st.sampled_from(["name", "url", "note", "model", "list", "description", "entrypoint", "steps"])
SECRET_KEYS = st.sampled_from(
    [
        "api_key",
        "openai_api_key",
        "hf_token",
        "HF_TOKEN",
        "accessToken",
        "extra_headers",
        "password",
        "Secret",
    ]
)
NUMBERS = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none()
PLAIN_TEXTS = st.text("xyz012-_ :,.", max_size=15)
PLAIN = st.recursive(
    NUMBERS | PLAIN_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN_KEYS, inner, max_size=3),
    max_leaves=8,
)


def texts_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, child in value.items() for text in (str(key), *texts_in(child))]
    if isinstance(value, list):
        return [text for child in value for text in texts_in(child)]
    return [value] if isinstance(value, str) else []


@settings(deadline=None)
@given(PLAIN)
def test_what_holds_no_secret_is_not_altered(document: Any) -> None:
    assert mask({"block": document}) == {"block": document}


@settings(deadline=None)
@given(SECRET_KEYS, SECRETS, PLAIN, PLAIN_TEXTS, PLAIN_TEXTS)
def test_a_secret_is_nowhere_in_the_masked_document(
    key: str, secret: str, plain: Any, before: str, after: str
) -> None:
    document = {
        "block": {"inner": {key: secret}, "command": ["serve", f"{before}{secret}{after}"]},
        "text": f"{secret}\n{secret}{secret}",
        "url": f"http://host/{before}?x={secret}",
        "plain": plain,
        "again": [[{"deep": secret}]],
    }
    masked = mask(document)
    assert all(secret not in text for text in texts_in(masked))
    assert masked["plain"] == plain
    assert masked["block"]["inner"] == {key: MASK}
    assert masked["again"] == [[{"deep": MASK}]]


@settings(deadline=None)
@given(st.lists(SECRETS, min_size=1, max_size=6), st.text("xyz ", max_size=10), st.randoms())
def test_no_secret_of_several_survives_in_a_text(
    secrets: list[str], filler: str, choose: random.Random
) -> None:
    """Also when one is part of another, or when they overlap."""
    nested = [*secrets, secrets[0] + secrets[-1], secrets[0][:6]]
    assume(all(len(secret.strip()) >= 6 for secret in nested))
    pieces = nested * 2
    choose.shuffle(pieces)
    text = redact(filler.join(pieces), nested)
    assert all(secret not in text for secret in nested)


@settings(deadline=None)
@given(st.text(string.printable, max_size=60), st.lists(SECRETS, max_size=4))
def test_text_without_a_secret_is_left_as_it_is(text: str, secrets: list[str]) -> None:
    assume("://" not in text and all(secret not in text for secret in secrets))
    assert redact(text, secrets) == text


@settings(deadline=None)
@given(SECRETS, SECRETS)
def test_masking_twice_is_masking_once(one: str, other: str) -> None:
    document = {"api_key": one, "note": f"{one} {other}", "list": [{"token": other}]}
    secrets = secrets_of(document)
    masked = mask(document, secrets)
    assert mask(masked, secrets) == masked


@pytest.mark.parametrize("secret", ["a+b*c(d", "[a-z]{3}", "x|yyyyy", "\\d\\d\\d", "^start$", "(?P<n>x)"])
def test_a_secret_is_text_and_no_pattern(secret: str) -> None:
    assert redact(f"<{secret}> abcdef 123", [secret]) == f"<{MASK}> abcdef 123"


def test_overlapping_secrets_leave_no_part_of_either() -> None:
    assert redact("abcdefghij", ["abcdef", "defghij"]) == MASK


def test_five_hundred_secrets_in_a_long_text_take_no_time() -> None:
    choose = random.Random(4711)
    secrets = ["sk-" + "".join(choose.choices(string.ascii_letters, k=40)) for _ in range(500)]
    words = [choose.choice([*secrets, "word", "another", "http://host/v1"]) for _ in range(20_000)]
    before = time.process_time()
    text = redact(" ".join(words), secrets)
    spent = time.process_time() - before
    assert all(secret not in text for secret in secrets)
    assert spent < 2.0
