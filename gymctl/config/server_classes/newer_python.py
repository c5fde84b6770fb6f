"""The syntax tree of a file that may be written for a newer Python than ours: its image's Python runs it.

    class Box[T](Base): …     ──▶  class Box(Base): …          PEP 695: type parameters are left out
    type Level = str          ──▶  Level = str                 … and aliases assigned
    f"{row["answer"]}"        ──▶  f"{0}"                      PEP 701: any quotes inside of an f-string

Lines stay where they are. Only a file that our Python refuses is rewritten.
"""

from __future__ import annotations

import ast
import re

_STRING = re.compile(r"(?<!\w)(?P<prefix>[rbuft]{0,2})(?P<quote>'''|\"\"\"|'|\")", re.IGNORECASE)
_HEAD = re.compile(
    r"(?P<kept>(?:async[ \t]+)?(?:class|def)[ \t]+\w+[ \t]*)(?=\[)"
    r"|type[ \t]+(?P<alias>\w+[ \t]*)(?=\[|=(?!=))"
)
"""The start of a statement that Python 3.11 does not know."""


def parse(content: bytes) -> ast.Module:
    """Raises SyntaxError or ValueError for what no Python that we know takes."""
    try:
        return ast.parse(content)
    except SyntaxError:
        try:
            older = rewritten(content.decode("utf-8"))
        except (IndexError, ValueError):  # it ends inside of something, or is no UTF-8
            older = None
        if older is None:
            raise
        return ast.parse(older)


def rewritten(text: str) -> str:
    """The text with what Python 3.11 does not know put in its words. Raises IndexError where it ends within
    a string or a bracket."""
    out: list[str] = []
    at = depth = 0
    is_start = True
    while at < len(text):
        head = _HEAD.match(text, at) if is_start else None
        string = _STRING.match(text, at)
        if head is not None:
            kept, at, is_start = head["kept"] or head["alias"], head.end(), False
            end = _past(text, at + 1, "]") + 1 if text[at] == "[" else at
            piece, at = kept + _breaks(text[at:end]), end
        elif string is not None:
            piece, at = _string(text, string)
            is_start = False
        elif text[at] in "#\\":
            end = _line_end(text, at) if text[at] == "#" else at + 2
            piece, at = text[at:end], end
        else:
            piece = text[at]
            at += 1
            depth += (piece in "([{") - (piece in ")]}")
            is_start = (piece == "\n" and depth == 0) or (is_start and piece.isspace())
        out.append(piece)
    return "".join(out)


def _string(text: str, start: re.Match[str]) -> tuple[str, int]:
    """A literal, with `{0}` for each of its fields, and where it ends."""
    prefix, quote = start["prefix"].lower(), start["quote"]
    has_fields = "f" in prefix or "t" in prefix
    out, at, left_out = [prefix.replace("t", "f") + quote], start.end(), ""
    while not text.startswith(quote, at):
        step = 1
        if has_fields and text[at] == "{" and text[at + 1] != "{":
            end = _field(text, at + 1)
            out.append("{0}")
            left_out, at = left_out + text[at:end], end
            continue
        if text[at] == "\\" and not (has_fields and text[at + 1] in "{}"):
            is_name = text.startswith("\\N{", at) and "r" not in prefix
            step = text.index("}", at) + 1 - at if is_name else 2
        elif has_fields and text[at] == "{":
            step = 2
        out.append(text[at : at + step])
        at += step
    return "".join(out) + quote + _breaks(left_out), at + len(quote)


def _field(text: str, at: int) -> int:
    """The end of a field of an f-string whose inside starts at `at`."""
    at = _past(text, at, ":}")
    while text[at] != "}":  # the format; quotes mean nothing in it
        at = _field(text, at + 1) if text[at] == "{" else at + 1
    return at + 1


def _past(text: str, at: int, ends: str) -> int:
    """Where the first of `ends` stands that is outside of brackets, strings and comments."""
    depth = 0
    while depth or text[at] not in ends:
        string = _STRING.match(text, at)
        if string is not None:
            at = _string(text, string)[1]
        elif text[at] == "#":
            at = _line_end(text, at)
        else:
            depth += (text[at] in "([{") - (text[at] in ")]}")
            at += 1
    return at


def _breaks(left_out: str) -> str:
    """As many line breaks as what was left out had, in the same statement."""
    return "\\\n" * left_out.count("\n")


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
