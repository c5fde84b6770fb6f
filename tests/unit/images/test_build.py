"""What is told when images do not build."""

from __future__ import annotations

from gymctl.errors import EngineError, IntegrityError
from gymctl.images.build import _combined


def test_several_failures_become_one_error_that_tells_each_with_its_place() -> None:
    first = EngineError("`a` does not build", where="server `x`", details=["no package"], hint="correct it")
    second = EngineError("files of `b` changed", hint="run it again")
    error = _combined([first, second])
    assert error.what == "2 images do not build"
    assert error.details == (
        "`a` does not build --> server `x`",
        "no package",
        "",
        "files of `b` changed",
        "",
    )
    assert error.hint == "correct it; run it again"
    assert _combined([first]) is first


def test_of_several_failures_what_was_tampered_with_decides_the_exit_code() -> None:
    error = _combined([EngineError("`a` does not build"), IntegrityError("`b` is not what was locked")])
    assert error.exit_code == 9
