"""Config files and override tokens, broken at random from a seed: what a fuzz test feeds to the program."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import yaml

_ODD_SCALARS = (
    "9" * 5000,
    "-" + "9" * 400,
    "1e99999",
    ".inf",
    ".nan",
    "-0",
    "0x",
    "0b2",
    "0o9",
    "1:99:99999999999",
    "~",
    "null",
    "no",
    "???",
    '"???"',
    "''",
    '""',
    "[]",
    "{}",
    "!!int x",
    "!!float x",
    "!!binary '='",
    "!!timestamp x",
    "!!bool maybe",
    "!!null x",
    "!!set {a, b}",
    "!!omap [a: 1]",
    "!!python/object:os.system x",
    "2024-13-45",
    "9999-99-99 99:99:99",
    "0000-01-01",
    "${a",
    "${}",
    "${.}",
    "${..a}",
    "${....................a}",
    "${a.b.c}",
    "${policy_model}",
    "${policy_model.responses_api_models}",
    "${oc.env:NO_SUCH_VARIABLE_4711}",
    "${oc.env:HOME}",
    "${oc.env:HOME,${oc.env:HOME}}",
    "${oc.decode:'['}",
    "${oc.create:{a: 1}}",
    "${oc.select:policy_model}",
    "${oc.dict.keys:policy_model}",
    "${oc.deprecated:a}",
    "${nosuchresolver:a}",
    "\\${a}",
    "$${a}",
    "${inherit_from:a}",
    "${copy:policy_model}",
    "${a}${b}",
    "~nosuchuser4711/x",
    "/" + "x" * 5000,
    '"\\0"',
    '"\\ud800"',
    '"\\u2028"',
    '"a\\nb"',
    "🙂",
    "ä" * 300,
    "*nosuch",
    "&a *a",
    "|\n  x",
    ">",
    "{a: {b: {c: 1}}}",
    "[[[[1]]]]",
    "{type: resources_servers, name: nothing}",
    "{type: responses_api_models, name: policy_model}",
    "true",
    "1.5",
    "-1",
    "0",
    "65536",
)
_ODD_KEYS = (
    "config_paths",
    "head_server",
    "_inherit_from",
    "_copy",
    "_delete_key",
    "entrypoint",
    "domain",
    "datasets",
    "mounts",
    "resources",
    "port",
    "host",
    "num_workers",
    "default_host",
    "results_dir",
    "disallowed_ports",
    "port_range_low",
    "server_spinup_timeout_seconds",
    "error_on_almost_servers",
    "agent_map",
    "agent_server",
    "policy_base_url",
    "responses_api_models",
    "resources_servers",
    "responses_api_agents",
    "environment_servers",
    "environment_server_name",
    "skip_verification",
    "1",
    "1.5",
    "true",
    "null",
    "~",
    "<<",
    "a.b",
    "a[0]",
    '""',
    '" "',
    "? x",
    "äöü",
    "${a}",
    "???",
)
_ODD_BYTES = (
    b"\x00",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\t",
    b"\r",
    b"\x85",
    b"\x0b",
    b"\x1b[31m",
    b"{",
    b"[",
    b"}",
    b"]",
    b"'",
    b'"',
    b"&a ",
    b"*a",
    b": ",
    b"- ",
    b"#",
    b"%YAML 9.9\n",
    b"---\n",
    b"...\n",
    b"? ",
    b"| ",
    b"!",
    b"!!",
    b"@",
    b"`",
    b"\n",
    b"  ",
    b"${",
    b"}",
    "\u2028".encode(),
    "\U0001f642".encode(),
)

Mutation = Callable[[bytes, random.Random], bytes]


def mutated(text: bytes, choose: random.Random) -> bytes:
    """`text` after one to four mutations, half of them of its values rather than of its bytes."""
    rounds = choose.choice((1, 1, 1, 2, 2, 3, 4))
    if choose.random() < 0.5:
        return _mutated_tree(text, choose, rounds)
    for _ in range(rounds):
        text = choose.choice(MUTATIONS)(text, choose)
    return text


def _mutated_tree(text: bytes, choose: random.Random, rounds: int) -> bytes:
    """Valid YAML, to come past the parser: values replaced, keys renamed, blocks moved and copied."""
    tree = yaml.safe_load(text)
    for _ in range(rounds):
        places = list(_places(tree))
        holder, key = choose.choice(places)
        from_holder, from_key = choose.choice(places)
        other = copy.deepcopy(from_holder[from_key])
        kind = choose.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            holder[key] = other
        elif kind == 2 and isinstance(holder, dict):
            holder[_odd(choose, _ODD_KEYS)] = holder.pop(key)
        elif kind == 3 and isinstance(holder, dict):
            holder[_odd(choose, _ODD_KEYS)] = other
        else:
            holder[key] = _odd(choose, _ODD_SCALARS)
        if not tree:
            break
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))
    for key, value in items:
        yield tree, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def _odd(choose: random.Random, texts: Sequence[str]) -> Any:
    """An odd text as the value that YAML reads in it, or as text."""
    text = choose.choice(texts)
    try:
        value = yaml.safe_load(text)
        yaml.safe_dump(value).encode()
        hash(value) if texts is _ODD_KEYS else None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError):
        return text.strip('"')
    return value if texts is _ODD_SCALARS or isinstance(value, (str, int, float, bool)) else text


def _lines(text: bytes) -> list[bytes]:
    return text.split(b"\n")


def _delete_line(text: bytes, choose: random.Random) -> bytes:
    lines = _lines(text)
    del lines[choose.randrange(len(lines))]
    return b"\n".join(lines)


def _duplicate_line(text: bytes, choose: random.Random) -> bytes:
    lines = _lines(text)
    lines.insert(choose.randrange(len(lines)), choose.choice(lines))
    return b"\n".join(lines)


def _swap_lines(text: bytes, choose: random.Random) -> bytes:
    lines = _lines(text)
    one, other = choose.randrange(len(lines)), choose.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _shift_line(text: bytes, choose: random.Random) -> bytes:
    lines = _lines(text)
    index = choose.randrange(len(lines))
    bare = lines[index].lstrip(b" ")
    lines[index] = choose.choice((b"", b" ", b"  ", b"    ", b"\t", b"      ")) + bare
    return b"\n".join(lines)


def _odd_value(text: bytes, choose: random.Random) -> bytes:
    lines = _lines(text)
    index = choose.randrange(len(lines))
    key, colon, _ = lines[index].partition(b":")
    if colon:
        lines[index] = key + b": " + choose.choice(_ODD_SCALARS).encode()
    return b"\n".join(lines)


def _odd_key(text: bytes, choose: random.Random) -> bytes:
    lines = _lines(text)
    index = choose.randrange(len(lines))
    key, colon, value = lines[index].partition(b":")
    if colon:
        indent = key[: len(key) - len(key.lstrip(b" -"))]
        lines[index] = indent + choose.choice(_ODD_KEYS).encode() + b":" + value
    return b"\n".join(lines)


def _added_line(text: bytes, choose: random.Random) -> bytes:
    lines = _lines(text)
    index = choose.randrange(len(lines))
    bare = lines[index].lstrip(b" ")
    indent = lines[index][: len(lines[index]) - len(bare)]
    added = f"{choose.choice(_ODD_KEYS)}: {choose.choice(_ODD_SCALARS)}".encode()
    lines.insert(index, indent + added)
    return b"\n".join(lines)


def _odd_bytes(text: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(len(text) + 1)
    return text[:at] + choose.choice(_ODD_BYTES) + text[at:]


def _flipped_byte(text: bytes, choose: random.Random) -> bytes:
    if not text:
        return text
    at = choose.randrange(len(text))
    return text[:at] + bytes([choose.randrange(256)]) + text[at + 1 :]


def _cut(text: bytes, choose: random.Random) -> bytes:
    start = choose.randrange(len(text) + 1)
    return text[:start] + text[start + choose.randrange(40) :]


def _cut_off(text: bytes, choose: random.Random) -> bytes:
    return text[: choose.randrange(len(text) + 1)]


def _moved_token(text: bytes, choose: random.Random) -> bytes:
    words = text.split(b" ")
    words.insert(choose.randrange(len(words)), choose.choice(words))
    return b" ".join(words)


def _anchored(text: bytes, choose: random.Random) -> bytes:
    """An anchor at one value and an alias (or a merge key) at a later line."""
    lines = _lines(text)
    first = choose.randrange(len(lines))
    key, colon, value = lines[first].partition(b":")
    if not colon:
        return text
    lines[first] = key + b": &anchor" + value
    second = choose.randrange(len(lines))
    bare = lines[second].lstrip(b" ")
    indent = lines[second][: len(lines[second]) - len(bare)]
    alias = choose.choice((b"alias: *anchor", b"<<: *anchor", b"<<: [*anchor, *anchor]", b"- *anchor"))
    lines.insert(second, indent + alias)
    return b"\n".join(lines)


def _deeper(text: bytes, choose: random.Random) -> bytes:
    depth = choose.choice((30, 49, 60, 110, 300))
    opening, closing = choose.choice((("[", "]"), ("{a: ", "}")))
    lines = _lines(text)
    lines.insert(choose.randrange(len(lines)), f"deep: {opening * depth}1{closing * depth}".encode())
    return b"\n".join(lines)


def _unicode(text: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(len(text) + 1)
    return text[:at] + chr(choose.choice((0x85, 0xA0, 0x3000, 0x202E, 0xFEFF, 0x1F642))).encode() + text[at:]


MUTATIONS: Sequence[Mutation] = (
    _delete_line,
    _duplicate_line,
    _swap_lines,
    _shift_line,
    _odd_value,
    _odd_value,
    _odd_value,
    _odd_key,
    _odd_key,
    _added_line,
    _added_line,
    _odd_bytes,
    _flipped_byte,
    _cut,
    _cut_off,
    _moved_token,
    _anchored,
    _deeper,
    _unicode,
)

_TOKEN_KEYS = (
    *("a", "a.b", "a.b.c", "policy_model", "policy_model.responses_api_models", "policy_base_url", "_copy"),
    *("head_server", "head_server.port", "config_paths", "policy_api_key", "a-b", "a/b", "a@b", "$x", "1"),
    *("weather.resources_servers.weather.port", "weather", "weather.resources_servers", "a[0]", "", "."),
    *("default_host", "results_dir", "server_spinup_timeout_seconds", "port_range_low", "a..b", "ä"),
)
_TOKEN_PIECES = (
    *("1", "x", "[", "]", "{", "}", ",", ":", "=", "'", '"', "\\", "${", "$", " ", "(", ")", "|", "#", "%"),
    *("choice(", "range(1,3)", "null", "true", "1e5", "???", "${a}", "${oc.env:HOME}", "inherit_from", "\n"),
    *("\x00", "ä", "🙂", "\ud800", "\t", "sort(", "shuffle(", "glob(*)", "cast", "int(", "json_str(", "~"),
    *("9" * 5000, "[" * 300, "{a:" * 100, "../x.yaml", "-1", "nan", "inf", "a=b", "&a", "!!x", "*"),
)


def token(choose: random.Random) -> str:
    """An override as a person might mistype it, or worse."""
    sign = choose.choice(("+", "++", "++", "++", "++", "", "~", "+++", "-+"))
    pieces = [choose.choice(_TOKEN_PIECES) for _ in range(choose.choice((0, 1, 1, 2, 3, 5, 9)))]
    equals = "" if choose.random() < 0.03 else "="
    return f"{sign}{choose.choice(_TOKEN_KEYS)}{equals}{''.join(pieces)}"
