"""From a configuration to the files of its benchmark (content.py): what it reads, and its servers' code.

Every file gets the place by which the configuration finds it below a search root. env.yaml, overrides and
the choice of a model are the runner's own and stay behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gymctl.artefacts.content import Content, Item, Template, content, refuse_secrets, settings_digest
from gymctl.config.model import Config, ServerBlock
from gymctl.config.policy import POLICY
from gymctl.config.reading import selectors
from gymctl.config.reading.files import display, read
from gymctl.config.reading.include import MOVED, entries_of
from gymctl.config.reading.roots import ENV_FILE, SearchRoots
from gymctl.config.shaping.standins import DUMMY
from gymctl.config.sources import Selection
from gymctl.config.tree import masking
from gymctl.errors import ConfigError, UsageError
from gymctl.images import nemo_gym
from gymctl.images.context import folder_context
from gymctl.images.lock import Lock
from gymctl.paths import bundled
from gymctl.rollouts.passport import RowsDigest

SPLIT = "benchmark"
_NAMES_A_FILE = ("_path", "_file", "_fpath", "prompt_config", "prepare_script", "_config")
_NO_PART = frozenset({"host", "port", "datasets"})
_FOLDERS = ("benchmarks", "environments")
"""A configuration in one of these has a folder of its own, which belongs to it."""


def gather(
    config: Config,
    selection: Selection,
    *,
    models: Mapping[str, Path] | None = None,
    lock: Lock | None = None,
    extra: Mapping[str, Path] | None = None,
    name: str | None = None,
) -> Content:
    """The content of what `selection` names; `config` is loaded from it, `needs_model=False`.

    models: folders of model servers whose images are locked, by place (`responses_api_models/openai_model`).
    extra: further files by place, such as a cassette. Raises ConfigError and UsageError for what cannot
    travel: rows that were not made, files outside of every search root, secret values, mounts.
    """
    _refuse(config, selection)
    tree = _Tree(SearchRoots(config.search_roots))
    chosen = _name(selection, name)
    entries = [
        tree.top(entry, f"benchmarks/{chosen}")
        for entry in _entries(selection, SearchRoots(config.search_roots))
    ]
    packed = tree.with_includes(entries)
    data = tuple(_add_rows(config, tree))
    for place in packed:
        _add_folder_of(place, tree, data)
    for block in config.servers.values():
        if block.implementation != DUMMY:
            _add_server(block, tree)
    for folder, path in (models or {}).items():
        tree.add_folder(folder, path)
    _add_named_files(config, tree)
    for place, path in (extra or {}).items():
        tree.add(place, path)
    benchmark = _selector(entries)
    if benchmark is None:
        benchmark = chosen
        text = "# Written by gymctl when the benchmark was packed.\nconfig_paths:\n"
        wrapper = text + "".join(f"  - {_quoted(entry)}\n" for entry in entries)
        tree.make(f"benchmarks/{chosen}/config.yaml", wrapper.encode())
    refuse_secrets(tree.files, _secrets(config, packed, tree))
    own = config.servers.get(POLICY)
    return content(
        name=chosen,
        benchmark=benchmark,
        files=tree.files,
        data=data,
        template=Template(
            rows={place: _rows_digest(tree.files[place]) for place in sorted(set(data))},
            config=settings_digest(dict(_settings(config))),
        ),
        description=_description(config),
        model=own.implementation if own is not None and own.implementation != DUMMY else "",
        lock=lock,
    )


class _Tree:
    """Files by place while they are gathered; the same place twice must be the same file."""

    def __init__(self, roots: SearchRoots) -> None:
        self.roots = roots
        self.files: dict[str, Item] = {}

    def add(self, place: str, path: Path) -> None:
        try:
            item = Item.of(path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}", where=place) from None
        known = self.files.setdefault(place, item)
        if known.sha256 != item.sha256:
            raise ConfigError(
                f"two files would be {place} in the benchmark: {known.path} and {path}",
                hint="rename one of them",
            )

    def make(self, place: str, data: bytes) -> None:
        if place in self.files:
            raise ConfigError(
                f"the benchmark has a {place} of its own, and one has to be written",
                hint="give the configuration file another name",
            )
        self.files[place] = Item.made(data)

    def add_folder(self, folder: str, path: Path, left_out: str | None = None) -> None:
        """A folder's files; without those below `left_out` of it."""
        for place, file in folder_context(path).files.items():
            if left_out is None or PurePosixPath(place).parts[0] != left_out:
                self.add(f"{folder}/{place}", file)

    def named(self, name: str, where: str) -> str:
        """Add a file that is found below the search roots under this name. Returns its place."""
        place = str(PurePosixPath(name))
        if place.startswith("/") or ".." in PurePosixPath(place).parts:
            raise ConfigError(
                f"`{name}` cannot travel: it is no path below a search root",
                where=where,
                hint="name it relative to the folder, or to one that --search-dir names",
            )
        path = self.roots.find(place)
        if path is None or not path.is_file():
            raise ConfigError(f"`{name}` is not there", where=where)
        self.add(place, path)
        return place

    def top(self, entry: str, folder: str) -> str:
        """Add a configuration that the user named; one outside of every root goes into `folder`."""
        found = self.roots.find(entry)
        if found is None:
            raise ConfigError(f"`{entry}` is not there", where=entry)
        path = Path(found)
        below = [path.relative_to(root) for root in self.roots.folders if path.is_relative_to(root)]
        inside = [place for place in below if ".." not in place.parts]
        place = min(map(str, inside), key=len) if inside else f"{folder}/{path.name}"
        self.add(place, path)
        return place

    def with_includes(self, places: list[str]) -> list[str]:
        """Add what these configurations include, at any depth, by the name under which it is included."""
        found = list(places)
        for place in found:  # grows while it is walked
            path = self.files[place].path
            assert path is not None
            for entry in entries_of(read(path, display(path, Path.cwd()))):
                known = entry if self.roots.find(entry) is not None else MOVED.get(entry, entry)
                included = self.named(known, place)
                if included not in found:
                    found.append(included)
        return found


def _refuse(config: Config, selection: Selection) -> None:
    if selection.overrides or selection.set_file:
        raise UsageError(
            "overrides are no part of a benchmark",
            where=selection.overrides[0].partition("=")[0] if selection.overrides else "--set-file",
            hint="write them into a config file, and name that: gymctl push FILE.yaml; keys into env.yaml",
        )
    if selection.agent_type:
        raise UsageError(
            "an agent for this benchmark is chosen by who runs it",
            where="--agent-type",
            hint="leave it out here, and give it to `gymctl eval`",
        )
    for block in config.servers.values():
        if block.kind != "responses_api_models" and isinstance(block.settings.get("mounts"), list):
            raise ConfigError(
                f"`{block.name}` mounts files of this machine, which cannot travel",
                where=f"{block.name}.mounts",
                hint=f"put them into {block.kind}/{block.implementation}",
            )


def _entries(selection: Selection, roots: SearchRoots) -> list[str]:
    """The configurations that were named, in the order in which they are merged; not the model's."""
    named = (
        (selectors.BENCHMARK, selection.benchmark),
        (selectors.ENVIRONMENT, selection.environment),
        (selectors.RESOURCES_SERVER, selection.resources_server),
    )
    resolved = [str(selectors.resolve(kind, value, roots)[0]) for kind, values in named for value in values]
    found = [*selection.config, *resolved]
    if not found:
        raise UsageError("no benchmark is named", hint="`gymctl list benchmarks` shows those that are there")
    return found


def _name(selection: Selection, given: str | None) -> str:
    """What the artefact is called: a legal repository name."""
    paths = [Path(entry).with_suffix("") for entry in selection.config]
    named = [path.parent.name if path.name == "config" else path.name for path in paths]
    every = (
        (given,)
        if given
        else (*selection.benchmark, *selection.environment, *selection.resources_server, *named)
    )
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(every).lower()).strip("-")
    return name or "benchmark"


def _selector(entries: list[str]) -> str | None:
    """How `gymctl eval` selects a single `benchmarks/<name>/config.yaml` or `benchmarks/<name>/<x>.yaml`."""
    if len(entries) != 1:
        return None
    place = PurePosixPath(entries[0])
    if place.parts[0] != "benchmarks" or place.suffix != ".yaml" or len(place.parts) < 3:
        return None
    value = selectors.BENCHMARK.value(Path(*place.parts[1:]))
    return value if str(place) in selectors.BENCHMARK.paths(value) else None


def _add_rows(config: Config, tree: _Tree) -> Iterator[str]:
    """The files of rows of the benchmark; those of other splits only where there is no such."""
    of_split = [dataset for dataset in config.datasets if dataset.type == SPLIT]
    for dataset in of_split or [one for one in config.datasets if one.path is not None]:
        if dataset.path is None:
            makes = "`gymctl dataset prepare` with the same configs makes it"
            raise ConfigError(
                f"the dataset `{dataset.name}` of `{dataset.declared_by}` has no file here",
                where=dataset.jsonl_fpath,
                hint=makes if dataset.prepare_script else "check `jsonl_fpath`",
            )
        yield tree.named(dataset.jsonl_fpath, f"dataset `{dataset.name}`")


def _add_folder_of(place: str, tree: _Tree, data: tuple[str, ...]) -> None:
    """README, prepare.py and prompts beside a benchmark's config. Of its `data` only the rows."""
    parts = PurePosixPath(place).parts
    path = tree.files[place].path
    if len(parts) < 3 or parts[0] not in _FOLDERS or path is None:
        return
    folder = path.parents[len(parts) - 3]
    if folder.name == parts[1]:
        tree.add_folder(f"{parts[0]}/{parts[1]}", folder, left_out="data")


def _add_server(block: ServerBlock, tree: _Tree) -> None:
    place = nemo_gym.place(block)
    if _is_relay_with_their_config(block, place, tree):
        return
    tree.add_folder(place, block.folder)
    if block.family != "nemo_gym":
        return
    package = nemo_gym.package_of(block)
    if package.checkout is not None:
        raise ConfigError(
            f"`{block.name}` runs on a NeMo Gym checkout, which cannot travel as a benchmark",
            where=str(package.checkout),
            hint="--search-dir nemo-gym==VERSION runs it on a published one",
        )
    # The sign by which a folder is known to belong to this version.
    version = package.requirement.partition("==")[2]
    place = f"nemo_gym-{version}.dist-info/METADATA"
    tree.files.setdefault(place, Item.made(f"Name: nemo-gym\nVersion: {version}\n".encode()))


def _is_relay_with_their_config(block: ServerBlock, place: str, tree: _Tree) -> bool:
    """Our relay stands in for one of NeMo Gym's, whose config of the same name is included. That travels,
    and the relay is the one that comes with gymctl, which the lock holds to its context."""
    if not block.folder.resolve().is_relative_to(bundled().resolve()):
        return False
    files = {f"{place}/{name}": file for name, file in folder_context(block.folder).files.items()}
    return any(tree.files[name].sha256 != Item.of(files[name]).sha256 for name in files.keys() & tree.files)


def _add_named_files(config: Config, tree: _Tree) -> None:
    """Prompts and scripts that settings name below a search root; the folder of skills."""
    for block in config.servers.values():
        for key, value in _texts(block.settings, ""):
            is_named = key.endswith(_NAMES_A_FILE) and not value.startswith("/") and ".." not in value
            found = tree.roots.find(value) if is_named and value else None
            if found is not None and found.is_file():
                tree.named(value, f"{block.name}.{key}")
    prompt = config.document.get("prompt_config")
    if isinstance(prompt, str) and prompt:
        tree.named(prompt, "prompt_config")
    skills = config.document.get("skills")
    folder = config.skills_folder
    if isinstance(skills, Mapping) and folder is not None:
        name = str(skills["path"])
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ConfigError(
                f"`{name}` cannot travel: it is no path below a search root", where="skills.path"
            )
        tree.add_folder(str(PurePosixPath(name)), folder)


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every text below with its last key. Datasets have been looked at."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name != "jsonl_fpath":
                yield from _texts(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, str):
        yield key, value


_DEFAULT = re.compile(r"\$\{oc\.env:\w+,\s*['\"]?([^}'\"]+)[^}]*\}")
_LOOKS_SECRET = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{12,}")


def _secrets(config: Config, packed: list[str], tree: _Tree) -> frozenset[str]:
    """Values to look for. What the packed files say themselves under a key such as `score_key` may be a plain
    word, and so may the default of `${oc.env:NAME,default}`: of those only what looks like a secret."""
    own: set[str] = set()
    defaults: set[str] = set()
    for place in packed:
        path = tree.files[place].path
        if path is not None:
            values = read(path, place).values
            # `${oc.env:NAME,default}` as it is written is a name; its default is looked at by itself.
            own |= {value for value in masking.secrets_of(values) if not _DEFAULT.fullmatch(value)}
            texts = (text for _, text in _texts(values, ""))
            defaults |= {match[1].strip() for text in texts for match in _DEFAULT.finditer(text)}
    env_file = tree.roots.find(ENV_FILE)
    private = (
        masking.secrets_of(read(env_file, ENV_FILE).values) if env_file is not None else frozenset[str]()
    )
    doubtful = {value for value in (own | defaults) - private if not _LOOKS_SECRET.fullmatch(value)}
    return frozenset((config.secrets | own | private) - doubtful)


def _settings(config: Config) -> Iterator[tuple[str, Any]]:
    for name, block in config.servers.items():
        if block.implementation != DUMMY:
            kept = {key: value for key, value in block.settings.items() if key not in _NO_PART}
            yield name, {block.kind: {block.implementation: masking.mask(kept, config.secrets)}}


def _rows_digest(item: Item) -> str:
    assert item.path is not None
    with item.path.open("rb") as stream:
        return str(RowsDigest.of(line.rstrip(b"\r\n") for line in stream if line.strip()))


def _description(config: Config) -> str:
    found = (block.settings.get("description") for block in config.servers.values())
    return next((str(text) for text in found if text), "")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
