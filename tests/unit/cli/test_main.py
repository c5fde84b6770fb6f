"""The one place where an error becomes text and an exit code."""

from __future__ import annotations

import errno

import pytest

from gymctl.cli import doctor, main


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 3), (errno.EROFS, 3), (errno.EBADF, 70)])
def test_a_disk_that_takes_nothing_is_no_bug(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise OSError(number, "the reason", "/some/file")

    monkeypatch.setattr(doctor, "command", refuse)
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor"])
    assert caught.value.code == code
    err = capsys.readouterr().err
    assert ("a bug in gymctl" in err) == (code == 70)
    assert ("a file cannot be written: the reason" in err) == (code == 3)
