"""References: one function reads them, and what it reads is written back the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.artefacts.reference import Reference, is_loopback, is_reference, parse, parse_place
from gymctl.errors import UsageError

DIGEST = f"sha256:{'0a' * 32}"
WORDS = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)
NAMES = st.from_regex(r"[a-z0-9]{1,5}((\.|_|__|-|--)[a-z0-9]{1,5}){0,2}", fullmatch=True)
HOSTS = st.one_of(
    st.just("localhost"),
    st.builds("{}.{}".format, WORDS, WORDS),
    st.builds("{}:{}".format, WORDS, st.integers(1, 65535)),
    st.just("[::1]:5000"),
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
TAGS = st.none() | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
DIGESTS = st.none() | st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)


@given(HOSTS, PATHS, TAGS, DIGESTS)
def test_every_reference_is_read_as_it_is_written(
    host: str, path: str, tag: str | None, digest: str | None
) -> None:
    reference = Reference(host, path, tag, digest)
    assert parse(str(reference)) == reference
    assert is_reference(str(reference))


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_a_usage_error(text: str) -> None:
    try:
        assert str(parse(text)) == text
    except UsageError as error:
        assert "no reference" in error.what


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("localhost:5000/bench/weather", "latest"),
        ("localhost:5000/bench/weather:2", "2"),
        (f"ghcr.io/team/weather:2@{DIGEST}", DIGEST),
        (f"10.0.0.1/weather@{DIGEST}", DIGEST),
    ],
)
def test_digest_pins_and_the_tag_is_latest_where_none_is_named(text: str, wanted: str) -> None:
    assert parse(text).wanted == wanted


@pytest.mark.parametrize(
    "text",
    [
        "weather",
        "weather/live",
        "localhost",
        "localhost/",
        "localhost:5000/Bench/x",
        "host.example//x",
        "host.example/x:",
        "host.example/x@sha256:12",
        f"host.example/x@{DIGEST.upper()}",
        "host.example/x:tag:tag",
        "user:password@host.example/x",
        "https://host.example/x",
        "host.example/../x",
        "host.example/x y",
        "host.example/x\n",
        "host.example:65536/x",
        "host.example:0/x",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "joe:hush-7@host.example:5000/x/y:1",
        "https://joe:hush-7@host.example:5000/x",
        "joe:hush@7@host.example:5000",
        "joe:hush-7@host.example:5000",
    ],
)
def test_a_login_in_a_reference_is_refused_and_not_repeated(text: str) -> None:
    assert is_reference(text)
    for read in (parse, lambda text: parse_place(text, "--registry")):
        with pytest.raises(UsageError) as caught:
            read(text)
        assert "hush" not in str(caught.value)
        assert "`****@host.example:5000/…`" in caught.value.what
        assert "docker login" in str(caught.value.hint)


@pytest.mark.parametrize(
    "token", ["weather", "weather/live", "./config", "../x", "results/x", "localhost", "a.b"]
)
def test_benchmarks_and_paths_are_no_references(token: str) -> None:
    assert not is_reference(token)


def test_place_of_a_registry_has_a_host_and_may_have_a_path() -> None:
    assert parse_place("localhost:5000/bench", "--registry") == ("localhost:5000", "bench/")
    assert parse_place("ghcr.io/a/b/", "--registry") == ("ghcr.io", "a/b/")
    assert parse_place("127.0.0.1:5000", "--registry") == ("127.0.0.1:5000", "")
    for text in (
        "bench",
        "https://x.example/y",
        "x.example/Y",
        "",
        "x.example:99999/y",
        "x.example/" + "y" * 300,
    ):
        with pytest.raises(UsageError):
            parse_place(text, "--registry")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.1.2.3", True),
        ("[::1]:5000", True),
        ("localhost.example.com:5000", False),
        ("127.0.0.1.example.com", False),
        ("10.0.0.1:5000", False),
        ("registry.example.com", False),
    ],
)
def test_plain_http_is_only_for_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
