"""The tar of a bundle: what is written is read, entry by entry."""

from __future__ import annotations

import hashlib
import io

from hypothesis import given
from hypothesis import strategies as st

from gymctl.artefacts import plain_tar


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}", fullmatch=True), st.binary(max_size=2000))
)
def test_the_plain_tar_gives_back_what_it_was_given(files: dict[str, bytes]) -> None:
    out = io.BytesIO()
    for name in sorted(files):
        plain_tar.write(out, name, len(files[name]), [files[name]])
    plain_tar.end(out)
    found = list(plain_tar.scan(io.BytesIO(out.getvalue()), "test"))
    assert {one.name: b"".join(plain_tar.chunks(out, one.offset, one.size)) for one in found} == files
    assert {one.name: one.sha256 for one in found} == {
        name: hashlib.sha256(data).hexdigest() for name, data in files.items()
    }
