"""The project of test_catalogue_slice.py (peer/slice.py says what is in it)."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes.program import gymctl
from peer import setup
from peer.slice import DIARY, PACKAGE, SECRET, SERVERS, Slice, document, write_server

from gymctl.runtime.releases import folders


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slice]:
    folder = tmp_path_factory.mktemp("nemo_gym")
    setup.link_ours(folder / "ours")
    write_server(folder / "ours", "diary", DIARY)
    (folder / "beside.yaml").write_text(yaml.safe_dump(document()))
    (folder / "key").write_text(SECRET)
    root = Path(folders([PACKAGE], print)[0])
    made = Slice(
        folder, f"nemo-gym-slice-{secrets.token_hex(3)}", root, [f"++head_server.port={setup.free_port()}"]
    )
    selected = [word for one in SERVERS for word in ("--resources-server", one.selected)]
    words = ("--search-dir", "ours", "--search-dir", PACKAGE, *selected, "--model-type", "scripted_model")
    words += ("--project", made.project, "--set-file", "diary_api_key=key", "--wait", "420")
    try:
        done = gymctl("up", "--detach", *words, *made.words, "beside.yaml", cwd=folder, timeout=1500)
        assert done.returncode == 0, done.stderr + done.stdout
        [project] = json.loads(gymctl("ps", made.project, "--json", cwd=folder).stdout)
        made.listed = project["servers"]
        made.urls = {one["server"]: one["url"] for one in made.listed}
        yield made
    finally:
        gymctl("down", made.project, cwd=folder)
        shutil.rmtree(folder / ".gymctl", ignore_errors=True)
