"""What is forwarded is known to be an answer; a very long one is only looked at."""

from __future__ import annotations

import pytest

from gymctl.servers.models import forwarded
from gymctl.servers.models.dialects.errors import ConversionError

FILLER = b" " * forwarded.LARGE


@pytest.mark.parametrize("padding", [b"", FILLER])
def test_good_answers_are_the_same_bytes(padding: bytes):
    chat = b'{"choices": [{"message": {}}]}' + padding
    assert forwarded.completion(chat) is chat
    response = b'{"output": []}' + padding
    assert forwarded.response(response) is response


@pytest.mark.parametrize("padding", [b"", FILLER])
@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "no"}'])
def test_what_is_no_answer_is_refused_however_long_it_is(body: bytes, padding: bytes):
    for check in (forwarded.completion, forwarded.response):
        with pytest.raises(ConversionError):
            check(body + padding)
