"""What `docker save` writes: images are found in it, and one whose layers are not its own is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import bundles

from gymctl.artefacts import saved
from gymctl.errors import EngineError


@pytest.mark.parametrize("is_old", [False, True])
def test_images_are_found_in_what_any_engine_saves(tmp_path: Path, is_old: bool) -> None:
    found = saved.find(bundles.docker_save(tmp_path / "images.tar", is_old=is_old))
    assert {one.id for one in found} == {image.id for image in bundles.lock().images}
    for image, layers in zip(found, bundles.IMAGES.values(), strict=True):
        assert [b"".join(one.chunks()) for one in image.layers] == list(layers)


def test_a_layer_that_is_not_the_configurations_is_refused(tmp_path: Path) -> None:
    file = bundles.docker_save(tmp_path / "images.tar")
    data = file.read_bytes()
    file.write_bytes(data.replace(b"pythonpython", b"pythonPython", 1))
    with pytest.raises(EngineError, match="layers are not its own"):
        saved.find(file)
