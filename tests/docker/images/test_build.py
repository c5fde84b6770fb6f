"""Real builds: what is missing is built once, failures name the package, cancellation leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.program import gymctl

from gymctl.config.model import Config
from gymctl.engine import Engine
from gymctl.errors import EngineError
from gymctl.images.build import ensure, existing
from gymctl.images.lock import read
from gymctl.images.secrets import BuildSecrets
from gymctl.programs import Finished

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


def folder(root: Path, name: str, **files: str) -> Path:
    path = root / name
    path.mkdir()
    (path / "app.py").write_text("print('hello')\n")
    for file, text in files.items():
        (path / file.replace("_txt", ".txt")).write_text(text)
    return path


def docker(*args: str) -> str:
    return subprocess.run(["docker", *args], capture_output=True, text=True, check=True).stdout


class WatchedEngine(Engine):
    """Notes every CLI step."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.endpoint, engine.facts)
        self.commands: list[tuple[str, ...]] = []

    async def run(self, *args: str, **options: Any) -> Finished:
        self.commands.append(args)
        return await super().run(*args, **options)


async def test_a_second_ensure_builds_nothing_and_an_edit_builds_one(
    tmp_path: Path, engine: Engine, own_base: str, config_of: Callable[..., Config], reporter: Any
) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two", requirements_txt="tabulate\n")
    first = await ensure(config_of(one, two), engine, reporter)
    assert len(first.built) == 3
    assert {first.base, *first.by_server.values()} <= existing(engine).keys()

    watched = WatchedEngine(engine)
    second = await ensure(config_of(one, two), watched, reporter)
    assert (second.built, second.by_server, watched.commands) == ((), first.by_server, [])
    assert [step.partition(" from ")[0] for step in reporter.steps] == [
        "images: 3 in use, 3 built",
        "images: 3 in use, all there",
    ]

    (one / "app.py").write_text("print('edited')\n")
    third = await ensure(config_of(one, two), engine, reporter)
    assert third.built == (third["one"],)
    assert third["one"] != first["one"]
    assert docker("run", "--rm", third["one"], "python", "app.py") == "edited\n"


async def test_a_server_runs_read_only_as_another_user_with_its_packages_and_the_sdk(
    tmp_path: Path, engine: Engine, own_base: str, config_of: Callable[..., Config], reporter: Any
) -> None:
    secret = folder(tmp_path, "closed", requirements_txt="tabulate\n")
    (secret / "app.py").chmod(0o600)
    image = (await ensure(config_of(secret), engine, reporter))["closed"]
    script = (
        "import os, sys, json, pathlib, tabulate, gymctl.contract.part as part;"
        "print(json.dumps([os.getuid(), os.getcwd(), os.environ['HOME'], part.SERVER_FOLDER,"
        " pathlib.Path('app.py').read_text(), sys.version_info[:2] >= (3, 11)]))"
    )
    hardened = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    answer = docker("run", "--rm", *hardened, image, "python", "-c", script)
    assert json.loads(answer) == [999, "/srv/server", "/tmp", "/srv/server", "print('hello')\n", True]
    verbose = docker("run", "--rm", *hardened, image, "sh", "-c", "python -v -c 'import fastapi' 2>&1")
    assert not re.findall(r"code object from .*\.py$", verbose, re.M), (
        "byte code is compiled again at every start"
    )


SEES_SECRETS = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 0
RUN --mount=type=secret,id=ca --mount=type=secret,id=network \\
    grep -q 'planted-c[e]rtificate' /run/secrets/ca && \\
    with-network sh -c 'echo "$NO_PROXY $UV_DEFAULT_INDEX" | grep -q "planted-h[o]st.*planted-l[o]gin"'
"""


async def test_planted_secrets_are_in_no_layer_label_or_history(
    tmp_path: Path,
    engine: Engine,
    fresh_base: str,
    config_of: Callable[..., Config],
    reporter: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GYMCTL_CA_BUNDLE", str(planted_bundle(tmp_path)))
    monkeypatch.setenv("NO_PROXY", "planted-host.invalid")
    base = await ensure(config_of(), engine, reporter)
    assert base.base in base.built
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://planted-login@index.invalid/simple")  # nothing is fetched
    images = await ensure(config_of(folder(tmp_path, "planted", Dockerfile=SEES_SECRETS)), engine, reporter)
    assert images["planted"] in images.built, "the build itself has seen the secrets"
    secrets = ("planted-certificate", "planted-host", "planted-login")
    for tag in (images.base, images["planted"]):
        told = docker("history", "--no-trunc", tag) + docker("inspect", tag)
        assert [secret for secret in secrets if secret in told] == []
    search = (
        "grep -rlE 'planted-(certificate|host|login)' /etc /opt /usr/local /srv /root /tmp /run /var || true"
    )
    assert docker("run", "--rm", "--user", "0", images["planted"], "sh", "-c", search) == ""


def planted_bundle(root: Path) -> Path:
    """What this machine trusts, and one line to look for."""
    trusted = BuildSecrets.of(os.environ).ca
    bundle = root / "planted.pem"
    bundle.write_text((trusted.read_text() if trusted else "") + "\n# planted-certificate\n")
    return bundle


async def test_a_package_that_does_not_exist_is_named_and_the_other_images_are_built(
    tmp_path: Path, engine: Engine, own_base: str, config_of: Callable[..., Config], reporter: Any
) -> None:
    good = folder(tmp_path, "good")
    bad = folder(tmp_path, "bad", requirements_txt="tabulate\nno-such-package-of-gymctl>=2\n")
    with pytest.raises(EngineError) as caught:
        await ensure(config_of(bad, good), engine, reporter)
    error = caught.value
    assert "resources_servers/bad" in error.what
    assert error.where == "server `bad`"
    assert "no-such-package-of-gymctl" in "\n".join(error.details)
    assert len(error.details) <= 14
    assert error.exit_code == 4
    tags = existing(engine)
    assert any(tag.startswith("gymctl/resources-good:") for tag in tags)
    assert not any(tag.startswith("gymctl/resources-bad:") for tag in tags)


def test_gymctl_build_locks_the_images_that_are_there_when_another_does_not_build(
    tmp_path: Path, own_base: str
) -> None:
    servers = tmp_path / "resources_servers"
    servers.mkdir()
    folder(servers, "bad", Dockerfile="ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN false\n")
    folder(servers, "doubtful", Dockerfile="ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG INDEX_TOKEN\n")
    for place in servers.iterdir():
        (place / "requirements.txt").touch()
    done = gymctl("build", "resources_servers/bad", "resources_servers/doubtful", cwd=tmp_path)
    assert done.returncode == 4
    assert "images.lock.json names the 2 images that are there" in done.stderr
    assert [one.name for one in read(tmp_path / "images.lock.json").images] == [
        "Dockerfile.base",
        "resources_servers/doubtful",
    ]
    assert "warning: the Dockerfile of resources_servers/doubtful has INDEX_TOKEN" in done.stderr


async def test_the_login_of_an_index_is_not_in_the_error(
    tmp_path: Path,
    engine: Engine,
    own_base: str,
    config_of: Callable[..., Config],
    reporter: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await ensure(config_of(), engine, reporter)  # the base comes from the usual index
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://someone:planted-password@127.0.0.1:9/simple")
    server = folder(
        tmp_path, "unreachable", requirements_txt="tabulate\n# from an index that nobody serves\n"
    )
    with pytest.raises(EngineError) as caught:
        await ensure(config_of(server), engine, reporter)
    assert "planted-password" not in str(caught.value) + "\n".join(reporter.said)
    assert "index" in str(caught.value.hint)


async def test_cancelling_a_build_leaves_no_process_no_image_and_no_file(
    tmp_path: Path,
    engine: Engine,
    own_base: str,
    config_of: Callable[..., Config],
    reporter: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = left_by_buildx()
    marker = f"3{time.time_ns() % 10**9}.25"
    name = f"slow-{marker.partition('.')[0]}"
    server = folder(tmp_path, name, Dockerfile=f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nRUN sleep {marker}\n")
    task = asyncio.create_task(ensure(config_of(server), engine, reporter))
    assert await until(lambda: any(f"sleep {marker}" in line for line in reporter.said), 120)
    # A step is told of before its process runs: one that is cancelled in between may go on in the engine.
    assert await until(lambda: f"sleep {marker} " in processes(marker), 120)
    begin = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begin < 60
    assert processes(str(scratch)) == []
    assert list(scratch.iterdir()) == []
    assert left_by_buildx() <= before
    # The engine ends the step itself when its client is gone.
    assert await until(lambda: not processes(marker), 60)
    assert not any(tag.startswith(f"gymctl/resources-{name}:") for tag in existing(engine))


def left_by_buildx() -> set[Path]:
    return {*Path("/tmp").glob("dockerfile*"), *Path("/tmp").glob("empty-dir*")}


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    for _ in range(int(seconds / 0.05)):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return False


def processes(text: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found
