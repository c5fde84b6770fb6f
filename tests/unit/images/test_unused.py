"""Which images `gymctl clean` may remove, and which stay whatever happens."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.images import lock, scratch
from gymctl.images.unused import HeldImage, locked, of_killed_checks, unused

BASE = "gymctl/base:1"
INPUTS = "0123456789abcdef" * 4


def image(
    name: str,
    *tags: str,
    tagged: str = "2026-01-01",
    base: str = BASE,
    digests: tuple[str, ...] = (),
    is_used: bool = False,
    platform: str = "linux/amd64",
) -> HeldImage:
    return HeldImage(f"sha256:{name}", tags, digests, INPUTS, platform, base, tagged, is_used, 10)


def going(*images: HeldImage, kept: Collection[str] = (), all_images: bool = False) -> dict[str, str]:
    found = unused(images, kept, all_images=all_images)
    return {one.image.id.removeprefix("sha256:"): one.why for one in found}


def test_the_newest_of_each_repository_stays_with_the_base_that_it_stands_on() -> None:
    images = (
        image("base1", BASE, tagged="2026-01-01", base="python:3.13"),
        image("base2", "gymctl/base:2", tagged="2026-01-05", base="python:3.13"),
        image("base0", "gymctl/base:0", tagged="2025-01-01", base="python:3.13"),
        image("old", "gymctl/resources-weather:1", tagged="2026-01-02"),
        image("new", "gymctl/resources-weather:2", tagged="2026-01-03", base=BASE),
    )
    assert going(*images) == {"base0": "an older one, not used", "old": "an older one, not used"}


def test_what_has_no_name_goes_and_what_was_pulled_by_digest_stays() -> None:
    pulled = image("pulled", digests=("localhost:5000/x/weather@sha256:abc",))
    assert going(image("gone"), pulled) == {"gone": "it has no name any more"}
    assert set(going(image("gone"), pulled, all_images=True)) == {"gone", "pulled"}
    assert going(pulled, kept={"sha256:abc"}, all_images=True) == {}


def test_used_named_by_others_and_locked_images_stay_even_with_all_images() -> None:
    """B51."""
    images = (
        image("used", "gymctl/agent-a:1", is_used=True),
        image("theirs", "gymctl/agent-b:1", "team/base:1"),
        image("locked", "gymctl/agent-c:1", base="gymctl/base:9"),
        image("its-base", "gymctl/base:9", base="python:3.13"),
        image("free", "gymctl/agent-d:1"),
    )
    assert going(*images, kept={"sha256:locked"}, all_images=True) == {"free": "not used by a container"}


def test_the_newest_is_told_for_each_platform() -> None:
    arm = image("arm", "gymctl/agent-a:1", tagged="2026-01-01", platform="linux/arm64")
    amd = image("amd", "gymctl/agent-a:2", tagged="2026-01-02")
    assert going(arm, amd) == {}


def test_the_name_in_a_registry_that_a_push_gave_is_ours() -> None:
    pushed = image("pushed", "gymctl/agent-a:1", f"localhost:5000/team/agent-a:{INPUTS[:20]}")
    newer = image("newer", "gymctl/agent-a:2", "localhost:5000/team/agent-a:x", tagged="2026-01-02")
    assert going(pushed, newer) == {"pushed": "an older one, not used"}
    assert going(newer, all_images=True) == {}, "x is a name that somebody gave"


def test_lock_files_of_the_folder_and_of_its_runs_are_read(tmp_path: Path) -> None:
    def sha(text: str) -> str:
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def locking(name: str, digest: str | None) -> lock.Lock:
        one = lock.LockedImage(
            name=name,
            repository=f"gymctl/{name}",
            tag="1",
            id=sha(name),
            digest=digest,
            platform="linux/amd64",
            inputs="0" * 64,
            base="Dockerfile.base",
        )
        return lock.Lock(images=(one,))

    (tmp_path / "results" / "x").mkdir(parents=True)
    lock.write(tmp_path / lock.FILE, locking("here", None))
    lock.write(tmp_path / "results" / "x" / lock.FILE, locking("run", sha("d")))
    (tmp_path / "runs" / "y").mkdir(parents=True)
    (tmp_path / "runs" / "y" / lock.FILE).write_text("broken")
    named = {sha("here"), "gymctl/here:1", sha("run"), "gymctl/run:1", sha("d")}
    assert locked(tmp_path) == named
    (tmp_path / "runs" / "y" / lock.FILE).write_text(f"<<<<<<< ours\n{locking('theirs', sha('e')).text()}")
    assert locked(tmp_path) == {*named, sha("theirs"), sha("e")}, "half a lock still says what is needed"


IMAGES = st.lists(
    st.builds(
        HeldImage,
        id=st.uuids().map(str),
        tags=st.lists(
            st.sampled_from(["gymctl/a:1", "gymctl/a:2", "gymctl/b:1", "team/x:1", "python:3"]), unique=True
        ).map(tuple),
        digests=st.just(()),
        inputs=st.just(INPUTS),
        platform=st.just("linux/amd64"),
        base=st.sampled_from(["gymctl/a:1", "gymctl/b:1", "python:3"]),
        tagged=st.dates().map(str),
        is_used=st.booleans(),
        own_size=st.integers(0, 10),
    ),
    max_size=8,
)


@given(IMAGES, st.booleans())
def test_nothing_used_or_named_by_others_ever_goes(images: list[HeldImage], all_images: bool) -> None:
    for one in unused(images, (), all_images=all_images):
        assert not one.image.is_used
        assert all(tag.startswith("gymctl/") for tag in one.image.tags)


def test_names_of_a_comparison_go_once_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    images = (
        image("same", "gymctl/agent-a:1", "gymctl/again-killed-0:1"),
        image("other", "gymctl/again-killed-1:1"),
        image("running", "gymctl/again-running-0:1"),
    )
    with scratch.folder(f"{scratch.CHECK}running-"):
        names = [(held.id, name) for held, name in of_killed_checks(images)]
        assert names == [
            ("sha256:same", "gymctl/again-killed-0:1"),
            ("sha256:other", "gymctl/again-killed-1:1"),
        ]
        assert going(*images, all_images=True) == {}
    assert len(list(of_killed_checks(images))) == 3


def test_what_a_bundle_brought_goes_like_what_was_built() -> None:
    images = (
        image("old", "gymctl-bundle/resources-weather:0123456789abcdef0123", tagged="2026-01-02"),
        image("new", "gymctl-bundle/resources-weather:123456789abcdef01234", tagged="2026-01-03"),
    )
    assert going(*images) == {"old": "an older one, not used"}
    assert going(*images, all_images=True).keys() == {"old", "new"}
