"""What tells that an engine calls an image by its manifest."""

from __future__ import annotations

import pytest

from gymctl.images.lock import Lock, LockedImage
from gymctl.images.stores import named_by_manifest

ID, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


@pytest.mark.parametrize(
    ("digests", "expected"),
    [
        ([f"gymctl/weather@{ID}"], True),
        ([f"localhost:5000/weather@{OTHER}", f"gymctl/weather@{ID}"], True),
        ([f"localhost:5000/weather@{OTHER}"], False),  # a pushed image in the classic store
        ([], False),
        (None, False),
    ],
)
def test_an_image_whose_own_digest_is_its_id_is_named_by_its_manifest(
    digests: list[str] | None, expected: bool
) -> None:
    assert named_by_manifest({"Id": ID, "RepoDigests": digests}) is expected


def test_a_digest_without_a_registry_is_nothing_to_pull_and_gives_way_to_a_pushed_one() -> None:
    image = LockedImage(
        name="a",
        repository="gymctl/a",
        tag="1",
        id=ID,
        digest=OTHER,
        platform="linux/amd64",
        inputs="",
        base="",
    )
    assert image.pinned is None
    pushed = image.model_copy(update={"repository": "localhost:5000/bench/a"})
    assert pushed.pinned == f"localhost:5000/bench/a@{OTHER}"
    assert Lock(images=(pushed,)).with_images([image]).images == (pushed,)
