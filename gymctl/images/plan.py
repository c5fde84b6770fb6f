"""Which images a config needs and what each is called: a tag is the hash of everything that went into it.

    base    = hash(id of the Python image, Dockerfile.base, locks, container half of gymctl)
    server  = hash(base tag, Dockerfile, files of the server folder)

The images of NeMo Gym's own servers are planned in `nemo_gym.py`, those of a whole project in `project.py`.

So "is it built?" is one look-up, an edit can never run old code, and a warm `up` builds nothing (DESIGN D3).
Secrets (CA bundle, index, proxies) take no part: they change how a build gets packages, not what it makes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gymctl.config.families import Family
from gymctl.config.model import Config, ServerBlock
from gymctl.contract.servers import ServerKind
from gymctl.errors import ConfigError
from gymctl.images import requirements
from gymctl.images.context import Context, base_context, server_context
from gymctl.paths import bundled

AGAIN = "gymctl/again-"
"""How images are called that are built a second time to be compared; then comes the mark of the command."""
LOADED = "gymctl-bundle/"
"""How images are called that a bundle brought."""
CHECKOUT = "nemo-gym checkout"
"""The image of a checkout of NeMo Gym's: where it lies is told to nobody whom a lock or an image is given to.
Two of them are told apart by what they hold."""
LABEL_INPUTS = "dev.gymctl.inputs"
LABEL_KIND = "dev.gymctl.image"
LABEL_SERVER = "dev.gymctl.implementation"
LABEL_BASE = "dev.gymctl.base"

KIND_SHORT: Mapping[ServerKind, str] = {
    "responses_api_models": "model",
    "resources_servers": "resources",
    "responses_api_agents": "agent",
    "environment_servers": "environment",
}
# Installed in this order; the first two exclude each other. base.constraints keeps the versions that the base
# was tested with: a conflict is then a clear message of the build, not a server that does not start.
_CONSTRAINED = "--constraint /opt/venv/base.constraints"
_INSTALLS = {
    "requirements.txt": _CONSTRAINED,
    "pyproject.toml": _CONSTRAINED,
    "requirements-nodeps.txt": "--no-deps",
}
# Lines of a requirements file that need files beside it: -r, -c, -e, --find-links, ./pkg, ../pkg, file:
_REFERS_TO_FILES = re.compile(
    r"^\s*(-[rcef]\b|--(requirement|constraint|editable|find-links)\b|\.{1,2}/|.*@\s*file:)", re.M
)
_PROJECT_NEEDS_ITSELF = re.compile(r"^\s*dynamic\s*=|\bpath\s*=|\bworkspace\s*=", re.M)


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The Python image that everything stands on, as the engine knows it."""

    reference: str
    id: str


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A Dockerfile's text, or a Jinja2 template with its variables: rendered only when something is built."""

    source: str
    variables: Mapping[str, object] | None = None

    def identity(self) -> str:
        return self.source if self.variables is None else f"{self.source}\0{sorted(self.variables.items())}"

    def text(self) -> str:
        if self.variables is None:
            return self.source
        import jinja2  # 0.1 s that a warm start does not pay

        environment = jinja2.Environment(
            trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
        )
        return environment.from_string(self.source).render(self.variables)


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """One image: its tag, what it is made of, and which server instances run it."""

    repository: str
    inputs: str
    """sha256 of everything that went in; the tag is its beginning."""
    dockerfile: Dockerfile
    context: Context
    context_digest: str
    """What `context` held when the tag was computed."""
    parent: str
    """BASE_IMAGE: the Python image for the base, the base's tag for a server."""
    kind: Literal["base", "server"]
    source: str
    """`resources_servers/weather`, or `Dockerfile.base`: how messages and labels name it."""
    servers: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        return f"{self.repository}:{self.inputs[:20]}"

    @property
    def labels(self) -> dict[str, str]:
        return {
            LABEL_INPUTS: self.inputs,
            LABEL_KIND: self.kind,
            LABEL_SERVER: self.source,
            LABEL_BASE: without_registry(self.parent),
        }


def registry_of(reference: str) -> str | None:
    """The host that a reference names; None for an image of Docker Hub or of the engine alone."""
    first, slash, _ = reference.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else None


def without_registry(reference: str) -> str:
    """A company's registry is told to nobody whom the image is given to."""
    host = registry_of(reference)
    return reference if host is None else reference.removeprefix(f"{host}/")


def plan_base(base: BaseImage) -> ImagePlan:
    """The image of the head, and the parent of all server images."""
    dockerfile = Dockerfile((bundled() / "Dockerfile.base").read_text("utf-8"))
    context = base_context()
    digest = context.digest()
    return ImagePlan(
        repository="gymctl/base",
        inputs=inputs_hash(base.id, dockerfile, digest),
        dockerfile=dockerfile,
        context=context,
        context_digest=digest,
        parent=base.reference,
        kind="base",
        source="Dockerfile.base",
    )


def plan(config: Config, base: BaseImage) -> list[ImagePlan]:
    """One plan per distinct server folder, in config order. Reads files, writes nothing."""
    return plan_servers(config, plan_base(base).tag)


def plan_servers(config: Config, base_tag: str) -> list[ImagePlan]:
    """`plan` for who has planned the base already: of the servers on our own SDK."""
    return [
        plan_server(folder, block.kind, block.implementation, base_tag, names)
        for folder, block, names in folders(config, "gymctl")
    ]


def folders(config: Config, family: Family) -> list[tuple[Path, ServerBlock, tuple[str, ...]]]:
    """The distinct server folders of a family, in config order: resolved, with one of the blocks, and the
    names of all."""
    names: dict[Path, list[str]] = {}
    blocks: dict[Path, ServerBlock] = {}
    for block in config.servers.values():
        if block.family == family:
            folder = block.folder.resolve()
            names.setdefault(folder, []).append(block.name)
            blocks.setdefault(folder, block)
    return [(folder, blocks[folder], tuple(found)) for folder, found in names.items()]


def plan_server(
    folder: Path,
    kind: ServerKind,
    implementation: str,
    base_tag: str,
    servers: tuple[str, ...] = (),
    dockerfile_of: Callable[[Context], Dockerfile] | None = None,
) -> ImagePlan:
    """The image of one server folder: by default its own Dockerfile, or the template's."""
    try:
        context = server_context(folder)
        dockerfile = (dockerfile_of or server_dockerfile)(context)
        digest = context.digest()
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}", where=str(folder)) from None
    return ImagePlan(
        repository=repository(kind, implementation),
        inputs=inputs_hash(base_tag, dockerfile, digest),
        dockerfile=dockerfile,
        context=context,
        context_digest=digest,
        parent=base_tag,
        kind="server",
        source=f"{kind}/{implementation}",
        servers=servers,
    )


def repository(kind: ServerKind, implementation: str) -> str:
    """A legal repository name: lower case, single separators, letters or digits at both ends."""
    name = re.sub(r"[^a-z0-9]+", "-", implementation.lower()).strip("-")
    return f"gymctl/{KIND_SHORT[kind]}-{name or 'server'}"


def inputs_hash(parent: str, dockerfile: Dockerfile, context_digest: str) -> str:
    parts = (parent, dockerfile.identity(), context_digest)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def server_dockerfile(context: Context) -> Dockerfile:
    """The folder's own Dockerfile, or the template for its requirement files and their lock."""
    if "Dockerfile" in context.files:
        return Dockerfile(context.files["Dockerfile"].read_text("utf-8", "replace"))
    template = (bundled() / "templates" / "Dockerfile.server").read_text("utf-8")
    texts = {
        name: context.files[name].read_text("utf-8", "replace") for name in _INSTALLS if name in context.files
    }
    if "requirements.txt" in texts:
        texts.pop("pyproject.toml", None)
    texts = {name: text for name, text in texts.items() if requirements.says_something(text)}
    whole_folder = any(
        (_REFERS_TO_FILES if name.endswith(".txt") else _PROJECT_NEEDS_ITSELF).search(text)
        for name, text in texts.items()
    )
    installs = [(name, _INSTALLS[name]) for name in texts]
    if requirements.locked_in(context):
        met = [(name, f"--offline {options}") for name, options in installs if options == _CONSTRAINED]
        installs = [(requirements.FILE, requirements.INSTALL), *met]
    return Dockerfile(template, {"installs": installs, "whole_folder": whole_folder})
