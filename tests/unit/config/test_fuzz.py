"""Broken files and tokens end in a readable error: never in a traceback, never in a hang.

The cases are the same in every run. For a longer search: GYMCTL_FUZZ_CASES=50000 GYMCTL_FUZZ_SEED=7.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fakes.mutations import mutated, token

from gymctl.compose.render import Rendering, render
from gymctl.compose.yaml import dump
from gymctl.config.load import load
from gymctl.config.model import Config
from gymctl.config.sources import Selection
from gymctl.config.telling.explain import explain
from gymctl.config.tree.masking import mask
from gymctl.errors import ConfigError, GymctlError, UsageError
from gymctl.runtime import parts

REPO = Path(__file__).resolve().parents[3]
CASES = int(os.environ.get("GYMCTL_FUZZ_CASES", "120"))
SEED = int(os.environ.get("GYMCTL_FUZZ_SEED", "4711"))
HANG_SECONDS = 20
"""Of CPU, for one case; a case takes a hundredth of that."""
SOURCES = sorted([*REPO.glob("server_images/*/*/configs/*.yaml"), *REPO.glob("benchmarks/*/*.yaml")], key=str)


class Hang(BaseException):
    """Not an Exception: no `except` on the way may swallow it."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def outcome(folder: Path, *config: str, tokens: tuple[str, ...] = ()) -> GymctlError | None:
    """What loading and showing end in. Anything but a GymctlError escapes."""
    selection = Selection(config=config, overrides=tokens, model_url="http://127.0.0.1:9/v1", model="m")
    try:
        loaded = load(selection, cwd=folder, environ={})
        yaml.safe_dump(mask(loaded.document, loaded.secrets), allow_unicode=True).encode(
            "utf-8", "surrogatepass"
        )
        for key in list(loaded.writers)[:3]:
            explain(loaded, key)
        as_containers(loaded)
    except GymctlError as error:
        assert isinstance(error, (ConfigError, UsageError)), error
        assert error.what.strip(), "an error says what is wrong"
        assert "Traceback" not in str(error)
        return error
    return None


def files_for(source: bytes, choose: random.Random) -> tuple[str, ...]:
    """The case alone, included, or under another file; with a model when it brings none."""
    model = () if b"responses_api_models:" in source else ("model.yaml",)
    return (*model, *choose.choice((("case.yaml",), ("outer.yaml",), ("case.yaml", "over.yaml"))))


def as_containers(config: Config) -> None:
    """What `up` would write: the compose file and each server's part."""
    ported = replace(
        config,
        servers={
            name: replace(block, port=block.port if block.is_port_explicit else 20_001 + index)
            for index, (name, block) in enumerate(config.servers.items())
        },
    )
    told = parts.build(ported, parts.Wiring("network", b"secret"))
    digests = {service: parts.digest(part) for service, part in told.items()}
    images = dict.fromkeys(ported.servers, "image")
    dump(render(ported, Rendering(images, "image", digests, "/folder")))


def folder_of(path: Path) -> Path:
    (path / "env.yaml").write_text("policy_api_key: sk-fuzz-4711\n")
    (path / "model.yaml").write_bytes(
        (REPO / "server_images/responses_api_models/openai_model/configs/openai_model.yaml").read_bytes()
    )
    (path / "outer.yaml").write_text("config_paths: [case.yaml]\nnote: outer\n")
    (path / "over.yaml").write_text("weather: {resources_servers: {weather: {port: 12000}}}\nnote: over\n")
    return path


def test_a_broken_file_ends_in_a_readable_error(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    choose = random.Random(SEED)
    refused = 0
    for number in range(CASES):
        source = choose.choice(SOURCES)
        content = mutated(source.read_bytes(), choose)
        (folder / "case.yaml").write_bytes(content)
        config = files_for(source.read_bytes(), choose)
        try:
            with bounded():
                refused += outcome(folder, *config) is not None
        except (Exception, Hang) as error:  # noqa: BLE001 - the case has to be told
            pytest.fail(f"case {number} of seed {SEED}, {source.name} as {config}: {error!r}\n{content!r}")
    assert 0 < refused < CASES


def test_a_broken_override_ends_in_a_readable_error(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "case.yaml").write_bytes((REPO / "benchmarks/weather/live.yaml").read_bytes())
    choose = random.Random(SEED)
    refused = 0
    for number in range(CASES):
        tokens = tuple(token(choose) for _ in range(choose.choice((1, 1, 2, 3))))
        try:
            with bounded():
                refused += outcome(folder, "model.yaml", "case.yaml", tokens=tokens) is not None
        except (Exception, Hang) as error:  # noqa: BLE001 - the case has to be told
            pytest.fail(f"case {number} of seed {SEED}: {error!r}\n{tokens!r}")
    assert 0 < refused < CASES
