"""Files for a newer Python than ours are read as that Python reads them, but for what it alone knows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gymctl
from gymctl.config.server_classes.newer_python import parse, rewritten
from gymctl.config.server_classes.server_class import read

CASES = [
    ("class A[T]: pass", "class A: pass"),
    ("class A[T: (str, int), *S, **P](B[T], c=1):\n    x: T", "class A(B[T], c=1):\n    x: T"),
    ("class A[\n    T,  # a ]\n    U = '[',\n](B): pass", "class A\\\n\\\n\\\n(B): pass"),
    ("class A:\n    async def f[T](self, x: T) -> T: ...", "class A:\n    async def f(self, x: T) -> T: ..."),
    ("if a:\n    type X = int", "if a:\n    X = int"),
    ("type X[T] = list[T]", "X = list[T]"),
    ("type = 3\ntype == 3\ntype (a)\ntype[0]", "type = 3\ntype == 3\ntype (a)\ntype[0]"),
    ('x = "type X = 1"\n# class A[T]:', 'x = "type X = 1"\n# class A[T]:'),
    ("x = [\ntype\n]\nclass_[0]", "x = [\ntype\n]\nclass_[0]"),
    ('f"a{d["b"]}c"', 'f"a{0}c"'),
    ("f'{f'{f'{1}'}'}'", "f'{0}'"),
    ("f'{\"\\n\".join(a)!r:>{w}}'", "f'{0}'"),
    ("f'{x:'>9}' + '}'", "f'{0}' + '}'"),
    ("f'{{}}{a}'", "f'{{}}{0}'"),
    ("f'{ {'a': 1}['a'] }'", "f'{0}'"),
    ("f'{x:%H:%M}' 'y'", "f'{0}' 'y'"),
    ("f'\\N{EN DASH}{x}'", "f'\\N{EN DASH}{0}'"),
    ("rf'\\{x}\\d{2}'", "rf'\\{0}\\d{0}'"),
    ("f'{\n  a  # }\n}' + b\nc", "f'{0}'\\\n\\\n + b\nc"),
    ("'''f'{x'''", "'''f'{x'''"),
    ("'it\\'s {x' if r'\\d' else b''", "'it\\'s {x' if r'\\d' else b''"),
    ("t'{x}'", "f'{0}'"),
]


@pytest.mark.parametrize(("newer", "older"), CASES)
def test_what_python_311_does_not_know_is_put_in_its_words(newer: str, older: str) -> None:
    assert rewritten(newer) == older
    ast.parse(older)


OWN = sorted(Path(gymctl.__file__).parent.glob("cli/*.py"))


def test_what_it_does_know_means_the_same_on_the_same_lines() -> None:
    assert len(OWN) > 50
    for file in OWN:
        text = file.read_text()
        told, meant = ast.parse(rewritten(text)), ast.parse(text)
        assert ast.dump(_without_fields(told)) == ast.dump(_without_fields(meant)), file
        assert _lines(told) == _lines(meant), file


class _Fields(ast.NodeTransformer):
    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        return ast.FormattedValue(ast.Constant(0), -1)


def _without_fields(tree: ast.Module) -> ast.AST:
    return _Fields().visit(tree)


def _lines(tree: ast.Module) -> list[int]:
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)]


@pytest.mark.parametrize(
    "text", ["def (", "class A[T", "x = 'a", 'f"{a"', "class A[T]:\n  pass\n pass", "f'{'", "'\\", "\xff"]
)
def test_what_no_python_takes_is_a_syntax_error(text: str) -> None:
    with pytest.raises(SyntaxError):
        parse(text.encode("latin-1"))


def test_the_fields_of_a_class_are_read_from_such_a_file(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from gymctl.servers import ResourcesServer, ServerConfig\n\n"
        "type Level = str\n\n\n"
        "def first[T](rows: list[T]) -> T:\n    return rows[0]\n\n\n"
        "class MineConfig(ServerConfig):\n    tries: int = 3\n\n\n"
        "class Mine(ResourcesServer):\n    config: MineConfig\n\n"
        '    def said(self, row: dict[str, str]) -> str:\n        return f"{row["answer"]}"\n\n\n'
        "app = Mine.app()\n"
    )
    found = read(tmp_path)
    assert (found.family, found.is_closed) == ("gymctl", True)
    assert "tries" in found.keys
