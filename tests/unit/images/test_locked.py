"""Only what a lock names is run; whatever is not that is refused, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gymctl.config.model import Config, GlobalSettings, ServerBlock
from gymctl.errors import EngineError, GymctlError, IntegrityError, PrerequisiteError
from gymctl.images import locked
from gymctl.images.context import base_context, server_context
from gymctl.images.lock import Lock, LockedImage
from gymctl.images.locked import Source, ensure_locked
from gymctl.images.plan import LABEL_INPUTS, LABEL_SERVER
from gymctl.programs import Finished

BASE = "Dockerfile.base"


def digest(of: str) -> str:
    return f"sha256:{(of.encode().hex() * 64)[:64]}"


class Engine:
    """Holds images by id; pulls those that a registry has, or says why not."""

    has_containerd_store = False

    def __init__(self, *held: str, platform: str = "linux/amd64") -> None:
        self.platform = platform
        self.held = {name: name for name in held}
        self.registry: dict[str, str] = {}
        self.says: dict[str, str] = {}
        self.commands: list[tuple[str, ...]] = []
        self.labels: dict[str, dict[str, str]] = {}

    def image_labels(self, reference: str) -> dict[str, str]:
        return self.labels.get(reference, {})

    def image_id(self, reference: str) -> str | None:
        return self.held.get(reference)

    async def run(self, *args: str, **_: Any) -> Finished:
        self.commands.append(args)
        pinned = args[-1]
        if pinned in self.registry:
            self.held[pinned] = self.held[self.registry[pinned]] = self.registry[pinned]
            return Finished("docker pull", 0, "", ())
        said = self.says.get(pinned, "Error response from daemon: manifest unknown: manifest unknown")
        return Finished("docker pull", 1, "", (said,))


class Reporter:
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.notes: list[str] = []

    def step(self, name: str, text: str) -> None:
        self.steps.append(f"{name}: {text}")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, text: str) -> None:
        """Not looked at."""


def folder(root: Path, name: str, text: str = "app = 1") -> Path:
    made = root / "resources_servers" / name
    made.mkdir(parents=True, exist_ok=True)
    (made / "app.py").write_text(text)
    return made


def config(*folders: Path, **named: Path) -> Config:
    servers = {
        name: ServerBlock(
            name, "resources_servers", place.name, "app.py", place, {}, (), "127.0.0.1", -1, False
        )
        for name, place in ({one.name: one for one in folders} | named).items()
    }
    return Config("p", servers, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})


def image(name: str, context: str, id: str, *, pushed: str | None = None, base: str = BASE) -> LockedImage:
    return LockedImage(
        name=name,
        repository="registry.example/p/image" if pushed else "gymctl/image",
        tag="t" * 20,
        id=digest(id),
        digest=digest(pushed) if pushed else None,
        platform="linux/amd64",
        inputs="0" * 64,
        context=context,
        base=base,
    )


def lock(*images: LockedImage, base: LockedImage | None = None) -> Source:
    first = base or image(BASE, base_context().digest(), "base", base="python:3.13-slim")
    return Source(Lock(gymctl="0.0.7").with_images([first, *images]), "images.lock.json")


def locked_folder(place: Path, id: str, **more: Any) -> LockedImage:
    return image(f"resources_servers/{place.name}", server_context(place).digest(), id, **more)


async def refused(config: Config, source: Source, engine: Engine) -> GymctlError:
    with pytest.raises(GymctlError) as caught:
        await ensure_locked(config, source, engine, Reporter())  # type: ignore[arg-type]
    return caught.value


async def test_images_that_are_here_are_run_by_their_ids_and_nothing_is_asked_for(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    engine, reporter = Engine(digest("base"), digest("w")), Reporter()
    source = lock(locked_folder(place, "w"), image("resources_servers/other", "c", "other"))
    images = await ensure_locked(config(weather=place, second=place), source, engine, reporter)  # type: ignore[arg-type]
    assert (images.base, images["weather"], images["second"]) == (digest("base"), digest("w"), digest("w"))
    assert engine.commands == []
    assert reporter.notes == []
    assert reporter.steps == ["images: 2 in use, locked by images.lock.json"]
    assert [one.name for one in images.lock.images] == [BASE, "resources_servers/weather"]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({LABEL_SERVER: "resources_servers/other"}, "is not an image of {} but of resources_servers/other"),
        (
            {LABEL_SERVER: "resources_servers/weather", LABEL_INPUTS: "1" * 64},
            "is the image of another {} than",
        ),
        ({LABEL_SERVER: "resources_servers/weather", LABEL_INPUTS: "0" * 64}, None),
    ],
)
async def test_image_that_says_it_is_of_another_server_is_refused(
    tmp_path: Path, labels: dict[str, str], told: str | None
) -> None:
    place = folder(tmp_path, "weather")
    engine, source = Engine(digest("base"), digest("w")), lock(locked_folder(place, "w"))
    engine.labels[digest("w")] = labels
    if told is None:
        assert (await ensure_locked(config(place), source, engine, Reporter()))["weather"] == digest("w")  # type: ignore[arg-type]
        return
    error = await refused(config(place), source, engine)
    assert isinstance(error, IntegrityError)
    assert told.format("resources_servers/weather (server `weather`)") in error.what


async def test_digests_that_begin_alike_are_shown_whole(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    context = server_context(place).digest()
    other = context[:-1] + ("0" if context[-1] != "0" else "1")
    error = await refused(config(place), lock(image("resources_servers/weather", other, "w")), Engine())
    assert error.what.endswith(f"locked {other}, found {context}")
    assert "gymctl build" in str(error.hint)


async def test_who_has_a_packed_benchmark_is_not_told_to_build_it(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    source = replace(lock(image("resources_servers/weather", "c", "w")), is_packed=True)
    error = await refused(config(place), source, Engine())
    assert error.hint == "go back to the files that were locked"


async def test_the_lock_of_a_packed_benchmark_is_not_told_by_its_place(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    engine, reporter = Engine(digest("base"), digest("w")), Reporter()
    source = replace(lock(locked_folder(place, "w")), is_packed=True)
    await ensure_locked(config(weather=place), source, engine, reporter)  # type: ignore[arg-type]
    assert reporter.steps == ["images: 2 in use, locked by the benchmark"]


async def test_an_engine_that_names_images_by_their_manifests_is_understood(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    engine = Engine(digest("base"), digest("m"))
    images = await ensure_locked(
        config(place),
        lock(locked_folder(place, "w", pushed="m")),
        engine,
        Reporter(),  # type: ignore[arg-type]
    )
    assert images["weather"] == digest("m")


async def test_what_is_missing_is_pulled_by_digest(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    engine, reporter = Engine(digest("base")), Reporter()
    pinned = f"registry.example/p/image@{digest('m')}"
    engine.registry[pinned] = digest("w")
    source = lock(locked_folder(place, "w", pushed="m"))
    images = await ensure_locked(config(place), source, engine, reporter)  # type: ignore[arg-type]
    assert images["weather"] == digest("w")
    assert engine.commands == [("pull", "--quiet", "--platform", "linux/amd64", pinned)]
    assert reporter.steps == ["images: 2 in use, locked by images.lock.json, 1 pulled"]


async def test_an_edited_folder_is_refused_with_both_digests(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    source = lock(locked_folder(place, "w"))
    before = server_context(place).digest()
    folder(tmp_path, "weather", "app = 2")
    error = await refused(config(place), source, Engine(digest("base"), digest("w")))
    assert isinstance(error, IntegrityError)
    assert error.what == (
        "the folder of resources_servers/weather is not the locked one: "
        f"locked {before[:12]}, found {server_context(place).digest()[:12]}"
    )
    assert error.where == "server `weather`"
    assert "gymctl build" in str(error.hint)


async def test_another_gymctl_is_refused_and_the_right_one_named() -> None:
    source = lock(base=image(BASE, "0" * 64, "base"))
    error = await refused(config(), source, Engine(digest("base")))
    assert isinstance(error, IntegrityError)
    assert "gymctl's own part of Dockerfile.base is not the locked one" in error.what
    assert "`pip install gymctl==0.0.7` brings the gymctl that wrote the lock" in str(error.hint)


async def test_another_release_of_the_same_minor_version_is_told_and_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locked, "__version__", "0.0.8")
    source, reporter = lock(base=image(BASE, "0" * 64, "base")), Reporter()
    images = await ensure_locked(config(), source, Engine(digest("base")), reporter)  # type: ignore[arg-type]
    assert images.base == digest("base")
    assert reporter.notes == ["the locked images hold gymctl 0.0.7; this is 0.0.8"]


async def test_edited_files_of_the_same_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked, "__version__", "0.0.7")
    error = await refused(config(), lock(base=image(BASE, "0" * 64, "base")), Engine(digest("base")))
    assert "gymctl's own files were edited since" in str(error.hint)


async def test_several_problems_are_told_together(tmp_path: Path) -> None:
    one, two, three = (folder(tmp_path, name) for name in ("one", "two", "three"))
    source = lock(locked_folder(one, "1"), locked_folder(three, "3"))
    folder(tmp_path, "one", "app = 2")
    error = await refused(config(one, two, three), source, Engine(digest("base"), digest("3")))
    assert isinstance(error, IntegrityError)
    assert error.what == "2 images are not as locked"
    assert error.where == "images.lock.json"
    assert [line.partition(":")[0] for line in error.details] == [
        "the folder of resources_servers/one is not the locked one",
        "resources_servers/two is not in the lock",
    ]


async def test_an_image_of_another_platform_is_not_run(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    engine = Engine(digest("base"), digest("w"), platform="linux/arm64")
    source = lock(locked_folder(place, "w"))
    error = await refused(config(place), source, engine)
    assert "resources_servers/weather is not in the lock for linux/arm64, only for linux/amd64" in str(error)
    assert "gymctl build" in (error.hint or "")
    error = await refused(config(place), replace(source, is_packed=True), engine)
    assert "DOCKER_DEFAULT_PLATFORM=linux/amd64" in (error.hint or "")
    assert "gymctl build" not in (error.hint or "")


async def test_what_was_never_pushed_is_not_looked_for_in_any_registry(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    engine = Engine(digest("base"))
    error = await refused(config(place), lock(locked_folder(place, "w")), engine)
    assert isinstance(error, IntegrityError)
    assert "never pushed" in error.what
    assert "gymctl build" in str(error.hint)
    assert "gymctl unbundle" in str(error.hint)
    assert engine.commands == []


NO_TLS = (PrerequisiteError, "the engine does not trust the certificate of registry.example")


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("filesystem layer verification failed for digest sha256:1", IntegrityError, "something else"),
        ("manifest verification failed for digest sha256:1", IntegrityError, "something else"),
        ("error pulling image configuration: image config verification failed", IntegrityError, "something"),
        ("invalid checksum digest format", IntegrityError, "something else"),
        ('failed commit on ref "layer": unexpected commit digest sha256:1', IntegrityError, "something else"),
        ("Error: manifest for x not found: manifest unknown: manifest unknown", IntegrityError, "has no"),
        ("unknown blob", IntegrityError, "has no"),
        ("dial tcp 127.0.0.1:9: connect: connection refused", PrerequisiteError, "does not answer"),
        ("dial tcp: lookup registry.example: no such host", PrerequisiteError, "does not answer"),
        ("net/http: TLS handshake timeout: i/o timeout", PrerequisiteError, "does not answer"),
        ("Error response from daemon: unauthorized: unauthorized", PrerequisiteError, "refuses"),
        ("pull access denied for x, repository does not exist or may require", PrerequisiteError, "refuses"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", *NO_TLS),
        ("http: server gave HTTP response to HTTPS client", PrerequisiteError, "does not speak TLS"),
        ("received unexpected HTTP status: 500 Internal Server Error", EngineError, "cannot be pulled"),
        ("write /var/lib/docker: no space left on device", EngineError, "cannot be pulled"),
    ],
)
async def test_why_a_pull_failed_decides_the_exit_code(
    tmp_path: Path, said: str, kind: type[GymctlError], text: str
) -> None:
    place = folder(tmp_path, "weather")
    engine = Engine(digest("base"))
    pinned = f"registry.example/p/image@{digest('m')}"
    engine.says[pinned] = said
    error = await refused(config(place), lock(locked_folder(place, "w", pushed="m")), engine)
    assert type(error) is kind
    assert text in error.what
    assert "resources_servers/weather" in error.what
    assert said in error.details


async def test_a_digest_of_another_image_is_refused_after_the_pull(tmp_path: Path) -> None:
    place = folder(tmp_path, "weather")
    engine = Engine(digest("base"))
    engine.registry[f"registry.example/p/image@{digest('m')}"] = digest("other")
    error = await refused(config(place), lock(locked_folder(place, "w", pushed="m")), engine)
    assert isinstance(error, IntegrityError)
    assert f"found {digest('other')[7:19]}" in error.what


async def test_a_difference_weighs_more_than_a_registry_that_is_away(tmp_path: Path) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two", "app = 2")
    engine = Engine(digest("base"))
    engine.says[f"registry.example/p/image@{digest('1')}"] = "connect: connection refused"
    source = lock(locked_folder(one, "a", pushed="1"), locked_folder(two, "b", pushed="2"))
    error = await refused(config(one, two), source, engine)
    assert isinstance(error, IntegrityError)
    assert any("does not answer" in line for line in error.details)
    assert any("has no" in line for line in error.details)


async def test_two_folders_of_one_name_have_each_their_own_image(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "a", "weather"), folder(tmp_path / "b", "weather", "app = 2")
    source = lock(locked_folder(first, "1"), locked_folder(second, "2"))
    engine = Engine(digest("base"), digest("1"), digest("2"))
    images = await ensure_locked(config(one=first, two=second), source, engine, Reporter())  # type: ignore[arg-type]
    assert (images["one"], images["two"]) == (digest("1"), digest("2"))
    assert len(images.lock.images) == 3


async def test_the_base_of_nemo_gym_servers_is_compared_and_need_not_be_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(tmp_path, "theirs")
    block = ServerBlock(
        *("theirs", "resources_servers", "theirs", "app.py", place, {}, (), "127.0.0.1", -1, False),
        family="nemo_gym",
    )
    asked = Config("p", {"theirs": block}, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})
    plans: Callable[..., Any] = locked.plan_project
    python = locked.BaseImage("x", "")
    family = next(one for one in plans(asked, locked.Pythons(python, python)) if "nemo-gym" in one.source)
    below = image(family.source, family.context_digest, "family", base="python")
    source = lock(below, locked_folder(place, "w", base=family.source))
    images = await ensure_locked(asked, source, Engine(digest("base"), digest("w")), Reporter())  # type: ignore[arg-type]
    assert images["theirs"] == digest("w")
    assert family.source in {one.name for one in images.lock.images}

    changed = lock(below.model_copy(update={"context": "0" * 64}), locked_folder(place, "w"))
    error = await refused(asked, changed, Engine(digest("base"), digest("w")))
    assert family.source in error.what


async def test_an_edited_checkout_of_nemo_gym_is_refused_also_by_the_next_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locked, "__version__", "0.0.8")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "nemo-gym"\n')
    place = folder(tmp_path, "theirs")
    block = ServerBlock(
        *("theirs", "resources_servers", "theirs", "app.py", place, {}, (), "127.0.0.1", -1, False),
        family="nemo_gym",
    )
    asked = Config("p", {"theirs": block}, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})
    below = image("nemo-gym checkout", "0" * 64, "family", base="python")
    source = lock(below, locked_folder(place, "w", base=below.name))
    error = await refused(asked, source, Engine(digest("base"), digest("w")))
    assert "the folder of nemo-gym checkout is not the locked one" in error.what
    assert "go back to the files that were locked" in str(error.hint)
