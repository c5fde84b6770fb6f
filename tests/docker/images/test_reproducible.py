"""Real builds, twice: the same id, or the steps and files that differ; and packages with other hashes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymctl.config.model import BuildSettings, Config
from gymctl.engine import Engine
from gymctl.errors import IntegrityError
from gymctl.images import requirements
from gymctl.images.build import ensure, existing, plan_all
from gymctl.images.reproducible import check

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
CLOCK = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 0
RUN mkdir /srv/kept && echo fixed >/srv/kept/fixed
RUN date +%s%N >/srv/kept/built-at && echo fixed >/srv/kept/too
COPY app.py /srv/kept/
USER 999:999
"""
INSTALLS = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 0
RUN echo x >>/var/log/dpkg.log; mkdir -p /srv/a/b; touch /tmp/uv-setuptools-$(date +%s%N).lock; date
"""


def folder(root: Path, name: str, **files: str) -> Path:
    path = root / name
    path.mkdir()
    for file, text in {"app_py": "print('hello')\n", **files}.items():
        (path / file.replace("_", ".")).write_text(text)
    return path


async def test_images_have_the_same_id_twice_and_a_clock_in_one_is_named(
    tmp_path: Path, engine: Engine, own_base: str, config_of: Callable[..., Config], reporter: Any
) -> None:
    data = folder(tmp_path, "data", requirements_txt="tabulate==0.9.0\n")
    (data / "configs").mkdir()
    (data / "configs" / "data.yaml").write_text("a: 1\n")
    config = config_of(data, folder(tmp_path, "own", Dockerfile=INSTALLS))
    await ensure(config, engine, reporter)
    plans = await plan_all(config, engine, reporter)
    assert len(plans) == 3
    await check(plans, engine, reporter, BuildSettings())

    config = config_of(folder(tmp_path, "clock", Dockerfile=CLOCK))
    await ensure(config, engine, reporter)
    await asyncio.sleep(1.1)  # layers hold whole seconds, and these are to differ
    plans = (await plan_all(config, engine, reporter))[1:]
    with pytest.raises(IntegrityError) as caught:
        await check(plans, engine, reporter, BuildSettings())
    error = caught.value
    assert error.exit_code == 9
    assert "1 of 1 image got" in error.what
    assert "resources_servers/clock" in error.what
    lines = [line.strip() for line in error.details]
    assert "srv/kept/built-at: content" in lines
    assert "srv/kept: time" in lines
    assert any(line.startswith("RUN date +%s%N") for line in lines)
    assert "COPY app.py /srv/kept/" in lines
    assert not any("fixed" in line and ":" in line.partition("RUN")[0] for line in lines)
    assert not [tag for tag in existing(engine) if "again" in tag], "second images are removed"


async def test_a_package_with_another_hash_is_refused_and_named(
    tmp_path: Path, engine: Engine, own_base: str, config_of: Callable[..., Config], reporter: Any
) -> None:
    place = folder(tmp_path, "held", requirements_txt="tabulate==0.9.0\n")
    assert await requirements.write(place, BuildSettings()) == 1
    lock = place / requirements.FILE
    good = lock.read_text()
    await ensure(config_of(place), engine, reporter)
    hashes = [line for line in good.splitlines() if "--hash" in line]
    bad = good
    for line in hashes:
        value = line.strip().rstrip(" \\").rpartition(":")[2]
        bad = bad.replace(value, f"{'0' * 8}{value[8:]}")
    lock.write_text(bad)
    with pytest.raises(IntegrityError) as caught:
        await ensure(config_of(place), engine, reporter)
    error = caught.value
    assert error.exit_code == 9
    assert "`tabulate==0.9.0`: expected sha256 00000000" in error.what
    found = re.search(r"found ([0-9a-f]{12})$", error.what)
    assert found is not None
    assert f":{found[1]}" in good, "the hash of the file that the index has"
    assert error.where == "server `held`"
    assert "`gymctl build resources_servers/held --lock-requirements`" in str(error.hint)
    assert "Hash mismatch" in "\n".join(error.details)

    (place / "requirements.txt").write_text("tabulate>=0.9\n")
    with pytest.raises(IntegrityError, match="/held:"):
        await ensure(config_of(place), engine, reporter)
