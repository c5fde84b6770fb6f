"""Whatever happens to tags, images and files between two starts, what runs is what was asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fakes.program import own_head
from fakes.registry import registry

from gymctl.images import lock
from gymctl.images.lock import Lock, LockedImage

TINY = "resources_servers/tiny"


def id_of(containers: Any, server: str = "tiny") -> str:
    return str(containers.inspect(server)["Image"])


def locked(folder: Any, name: str = TINY) -> LockedImage:
    """What the project ran last."""
    found = lock.read(folder.parts.parent / lock.FILE).find(name, "linux/amd64")
    assert found is not None
    return found


def edit(folder: Any) -> str:
    """Give the server code that no image has yet; returns its last line."""
    line = f"# {uuid.uuid4().hex}\n"
    (folder.path / TINY / "app.py").write_text(folder.ready_app + line)
    return line


def done(finished: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert finished.returncode == 0, finished.stderr
    return finished


def test_locked_takes_images_by_digest_wherever_tags_point(
    folder: Any, containers: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder.server("tiny")
    edit(folder)
    code = (folder.path / TINY / "app.py").read_text()
    done(folder.up("-d"))
    mine, docker = locked(folder), containers.docker
    tag = f"{mine.repository}:{mine.tag}"
    assert id_of(containers) == mine.id
    with registry(tmp_path_factory.mktemp("registry")) as served:
        pushed = mine.model_copy(
            update={"repository": f"{served.address}/team/tiny", "digest": served.add(tag)}
        )
        file = folder.path / lock.FILE
        lock.write(file, lock.read(folder.parts.parent / lock.FILE).with_images([pushed]))

        # Up with tags, then by digest: that is a change.
        other = locked(folder, "Dockerfile.base")
        docker("tag", other.id, tag)
        done(folder.up("-d", "--locked"))
        assert id_of(containers) == mine.id
        shown = done(folder.run("ps"))
        assert f"{mine.id[7:14]} locked" in shown.stdout
        compose = (folder.parts.parent / "compose.yaml").read_text()
        images = [line.split("image:")[1].strip() for line in compose.splitlines() if " image: " in line]
        assert sorted(images) == sorted([mine.id, other.id])
        assert "listens on" in done(folder.run("logs", "tiny")).stdout
        assert "nothing has changed" in done(folder.up("-d", "--locked")).stderr

        # An edit is refused while the project goes on.
        edit(folder)
        refused = folder.up("-d", "--locked")
        assert refused.returncode == 9
        assert f"the folder of {TINY} is not the locked one: locked {mine.context[:12]}" in refused.stderr
        assert id_of(containers) == mine.id
        (folder.path / TINY / "app.py").write_text(code)

        # Without the lock the tag counts again, but not for an image of something else.
        done(folder.up("-d"))
        assert id_of(containers) == locked(folder).id != other.id
        docker("inspect", tag)
        done(folder.run("down"))

        # Not here at all: pulled.
        docker("rmi", "--force", *{mine.id, locked(folder).id})
        assert "1 pulled" in done(folder.up("-d", "--locked")).stderr
        assert id_of(containers) == mine.id
        done(folder.run("down"))
        docker("rmi", "--force", mine.id)
    away = folder.up("-d", "--locked", timeout=100)
    assert away.returncode == 3
    assert f"{served.address} does not answer for the image of {TINY}" in away.stderr
    assert containers.left() == []


def test_edits_removed_images_and_an_absent_registry_are_no_trouble_to_a_start(
    folder: Any, containers: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """B50, B52."""
    docker, name = containers.docker, uuid.uuid4().hex[:12]
    folder.server("tiny")
    folder.server("other")
    with registry(tmp_path_factory.mktemp("registry")) as served:
        served.status = 500
        users_image, users_volume = f"gymctl-test-team/base:{name}", f"gymctl-test-{name}"
        docker("volume", "create", users_volume)
        done(folder.up("-d"))
        python = locked(folder, "Dockerfile.base").base
        own = f"{served.address}/python:{name}"
        try:
            for one in (own, users_image):
                docker("tag", python, one)
            folder.environ["GYMCTL_BASE_IMAGE"] = own
            first, others = locked(folder), containers.inspect("other")["Id"]

            line = edit(folder)
            assert "1 built from" in done(folder.up("-d")).stderr
            running = containers.inspect("tiny")["Name"].lstrip("/")
            assert docker("exec", running, "tail", "-1", "app.py") == line
            assert containers.inspect("other")["Id"] == others
            second = locked(folder)
            assert second.context != first.context
            done(folder.run("down"))

            docker("rmi", "--force", f"{second.repository}:{second.tag}")
            assert "1 built from" in done(folder.up("-d")).stderr
            done(folder.run("down"))
            docker("rmi", "--force", f"{second.repository}:{second.tag}")
            assert served.requests == []
            docker("image", "inspect", users_image)
            docker("volume", "inspect", users_volume)
        finally:
            docker("rmi", own, users_image, check=False)
            docker("volume", "rm", users_volume, check=False)


def test_two_projects_of_one_folder_start_at_once_each_with_its_own_server_of_one_name(
    folder: Any, containers: Any
) -> None:
    folder.server("tiny")
    for root in ("a", "b"):
        shutil.copytree(folder.path / "resources_servers", folder.path / root / "resources_servers")
        (folder.path / root / TINY / "app.py").write_text(f"{folder.ready_app}# {root}\n")
    shutil.rmtree(folder.path / "resources_servers")
    names = {root: f"{folder.project[:40]}-{root}" for root in ("a", "b")}
    heads = {root: own_head() for root in names}

    def up(root: str, *flags: str) -> subprocess.CompletedProcess[str]:
        selection = ("tiny.yaml", "--search-dir", root, "--project", names[root], heads[root])
        return folder.run("up", *selection, "--runtime", "compose", "-d", *flags)

    def code(root: str) -> str:
        label = f"label=dev.gymctl.project={names[root]}"
        found = containers.docker("ps", "-q", "--filter", label, "--filter", "label=dev.gymctl.server=tiny")
        return str(containers.docker("exec", found.strip(), "tail", "-1", "app.py"))

    def written(root: str) -> Lock:
        return lock.read(folder.path / ".gymctl" / names[root] / lock.FILE)

    try:
        with ThreadPoolExecutor() as at_once:
            for finished in at_once.map(up, names):
                done(finished)
            assert [code(root) for root in names] == ["# a\n", "# b\n"]
            one, two = (written(root) for root in names)
            both = one.with_images([image for lock in (one, two) for image in lock.images])
        assert len(both.images) == 3
        lock.write(folder.path / "both.json", both)
        done(up("b", "--locked", "--lock", "both.json"))
        assert code("b") == "# b\n"
        rows = json.loads(folder.run("ps", names["b"], "--json").stdout)[0]["servers"]
        mine = two.find(TINY, "linux/amd64", two.images[-1].context)
        assert mine is not None
        assert {row["image"] for row in rows if row["server"] == "tiny"} == {mine.id}
    finally:
        for name in names.values():
            folder.run("down", name)
