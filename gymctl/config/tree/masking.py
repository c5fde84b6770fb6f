"""Secrets out of everything that is printed or served: by the key's name and by value (CONTRACT 1.15).

Masked are leaves whose key contains `token`, `key` or `header`; lists under such a key item by item; mappings
are walked. Beyond the peer: any case (`HF_TOKEN`), passwords, secrets, credentials and authorisation by name,
every value of a `…headers` mapping, user info and keys in URLs, tokens in the path of an index, bearer
tokens in a text, and any text that repeats a masked value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

MASK = "****"

_PEER = ("token", "key", "header")
_MORE = re.compile(r"passw|passphrase|secret|credential|authori[sz]ation|cookie|\bauth\b", re.IGNORECASE)
# Up to the last @ before the path: a password may hold one.
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]+(?=@)")
_QUERY = re.compile(r"([?&](?:[\w.-]*(?:key|token|secret|passw\w*|signature)|sig)=)([^&#\s]+)", re.IGNORECASE)
# A step of a path that nobody would call a folder: where some indexes want their token.
_STEP = re.compile(r"(?<=/)(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16,}(?=[/?#\s]|$)")
_INDEX_KEYS = ("index_url", "extra_index_urls")
# `Bearer of news` is a text: a token has a digit.
_BEARER = re.compile(r"(?<=\bBearer )(?=[\w.~+/=-]*\d)[\w.~+/=-]{6,}", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[\w.\[\]-]+\}|\$\{oc\.env:\w+\}")
_SHORTEST_SECRET = 6
_NOT_SECRET = re.compile(r"tokenizer|answer_?key|keyword|max_.*tokens|tokens?_id|_key_?name", re.IGNORECASE)
"""Keys that rule 1.15 masks on the page but whose value is no secret: it may stand in a log."""
_COMMON_VALUES = frozenset(
    {"dummy", "dummy_key", "dummy-key", "not-needed", "not_needed", "unused", "no-key-required"}
)


def is_secret(key: object) -> bool:
    """Does the last step of a dotted key name something to hide?"""
    name = str(key).rsplit(".", 1)[-1].lower()
    return any(word in name for word in _PEER) or _MORE.search(name) is not None


def is_reference(value: object) -> bool:
    """Nothing but `${a.b}`, `${oc.env:X}` or `???`: a name, no secret, also under a secret's key."""
    return isinstance(value, str) and (value == "???" or _REFERENCE.fullmatch(value) is not None)


def tells_nothing(key: object, value: object) -> bool:
    """A leaf that rule 1.15 masks although it is no secret: `max_output_tokens: 100`, `tokenizer: x`."""
    is_number = isinstance(value, (int, float)) and "token" in str(key).lower() and not _MORE.search(str(key))
    return is_number or _NOT_SECRET.search(str(key)) is not None


def is_header(key: object) -> bool:
    """Is everything below this key a secret?"""
    return str(key).lower().endswith(("header", "headers"))


def mask(document: Any, secrets: Collection[str] | None = None) -> Any:
    """A copy with secrets replaced. `secrets` defaults to those of the document itself."""
    values = secrets_of(document) if secrets is None else secrets
    return _mask(document, "", False, _pattern(values))


def redact(text: str, secrets: Collection[str]) -> str:
    """`text` without any of `secrets`, without user info and keys in URLs, and without bearer tokens."""
    return _redact(text, _pattern(secrets))


def secrets_of(document: Any) -> frozenset[str]:
    """The clear text that masking hides, as far as it can be told from ordinary words and numbers."""
    return frozenset(_collect(document, "", False))


def tokens_in_path(url: str) -> Iterator[str]:
    """Steps of the path of an index that are its login: `https://index/dl/0f9e8d7c6b5a4d3c/simple`."""
    yield from _STEP.findall(url)


def _mask(value: Any, key: object, in_headers: bool, pattern: re.Pattern[str] | None) -> Any:
    if isinstance(value, Mapping):
        inside = in_headers or is_header(key)
        return {name: _mask(child, name, inside, pattern) for name, child in value.items()}
    hidden = in_headers or is_secret(key)
    if isinstance(value, (list, tuple)):
        return [MASK] * len(value) if hidden else [_mask(child, "", False, pattern) for child in value]
    if hidden:
        return MASK
    return _redact(value, pattern) if isinstance(value, str) else value


def _redact(text: str, pattern: re.Pattern[str] | None) -> str:
    if pattern is not None:
        text = _without(text, pattern)
    if "earer " in text:
        text = _BEARER.sub(MASK, text)
    return _QUERY.sub(rf"\1{MASK}", _USER_INFO.sub(MASK, text)) if "://" in text else text


def _without(text: str, pattern: re.Pattern[str]) -> str:
    """Every match replaced, also of secrets that overlap: `sub` would leave the end of the second one."""
    pieces: list[str] = []
    end = 0
    match = pattern.search(text)
    while match is not None:
        if match.start() >= end:
            pieces += (text[end : match.start()], MASK)
        end = max(end, match.end())
        match = pattern.search(text, match.start() + 1)
    return "".join([*pieces, text[end:]])


def _pattern(secrets: Collection[str]) -> re.Pattern[str] | None:
    if not secrets:
        return None
    return re.compile("|".join(re.escape(secret) for secret in sorted(secrets, key=len, reverse=True)))


def _collect(value: Any, key: object, in_headers: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        inside = in_headers or is_header(key)
        for name, child in value.items():
            yield from _collect(child, name, inside)
    elif isinstance(value, (list, tuple)):
        inside = in_headers or is_secret(key)  # as on the page, where an item is hidden whole
        for child in value:
            yield from _collect(child, key, inside)
    elif isinstance(value, str):
        if (in_headers or is_secret(key)) and not _NOT_SECRET.search(str(key)) and _is_telling(value):
            yield value
        if "earer " in value:
            yield from filter(_is_telling, _BEARER.findall(value))
        if "://" in value:
            yield from filter(_is_telling, _in_urls(value))
            if key in _INDEX_KEYS:
                yield from tokens_in_path(value)


def _in_urls(text: str) -> Iterator[str]:
    for user_info in _USER_INFO.findall(text):
        yield user_info
        yield user_info.partition(":")[2]
    for _, value in _QUERY.findall(text):
        yield value


def _is_telling(value: str) -> bool:
    """Worth hiding by value: hiding `1`, `EMPTY` or `dummy` wherever they stand would ruin every log."""
    is_plain = value.isdigit() or value.lower() in _COMMON_VALUES or is_reference(value)
    return len(value) >= _SHORTEST_SECRET and not is_plain
