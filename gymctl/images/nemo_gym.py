"""The images of NeMo Gym's own servers (DESIGN D13): a base with its package, and one for each server folder.

    family base = hash(id of a Python image >= 3.13.14, the package: a version or a checkout, template, locks)
    server      = hash(family base's tag, Dockerfile, files of the server folder)

The package holds the folders of all servers beside its own modules, and servers import each other from there
(`resources_servers.<name>.app`). A server's folder is laid over its place among them: it runs where its code
expects to be.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gymctl.config.families import REQUIREMENT_FILES
from gymctl.config.model import Config, ServerBlock
from gymctl.images import requirements as locked_requirements
from gymctl.images.context import Context, base_scripts, checkout_files
from gymctl.images.plan import (
    CHECKOUT,
    BaseImage,
    Dockerfile,
    ImagePlan,
    folders,
    inputs_hash,
    plan_server,
)
from gymctl.paths import PACKAGE, bundled

VERSION = "0.7.0"
"""What a server folder that lies in no installation and no checkout stands on, unless it names a version."""
ALONG = "defusedxml>=0.7.1"
"""Of the package's `dev` extra, which every server names: what some of them import when they run."""
LIBRARIES: Mapping[str, tuple[str, ...]] = {"rdkit": ("libxext6", "libxrender1")}
"""Wheel -> Debian packages with libraries that it takes to be on every machine."""
REPOSITORY = "gymctl/nemo-gym"
ROOT = "/srv/gym"
"""Where the package, and with it every server folder, lies in an image."""

_LINE = re.compile(r"nemo[-_.]gym\s*(?:\[([^\]]*)\])?\s*(?:==\s*([\w.+!-]+))?", re.IGNORECASE)
_ASKED = re.compile(r"""^[\s"']*([A-Za-z][\w.-]*)""", re.MULTILINE)
_FROM_GIT = re.compile(r"""git\+|\bgit\s*=\s*["']""")
_RUNS_GIT = re.compile(r"""["']git["'],\s*["']|["']git clone """)
_DIST_INFO = re.compile(r"nemo_gym-([\w.+!]+)\.dist-info")


@dataclass(frozen=True, slots=True)
class Package:
    """Which nemo-gym a server runs on."""

    requirement: str
    """`nemo-gym==0.7.0`, or `nemo-gym` of a checkout."""
    checkout: Path | None = None

    @property
    def source(self) -> str:
        return self.requirement if self.checkout is None else CHECKOUT


def package_of(block: ServerBlock) -> Package:
    """The package of the installation or checkout that a server folder `<root>/<kind>/…` lies in, else the
    version that its requirements name, else `VERSION`."""
    held = package_at(_root(block))
    if held is not None:
        return held
    named = next((match[2] for match in _LINE.finditer(_requirements(block.folder)) if match[2]), None)
    return Package(f"nemo-gym=={named or VERSION}")


def package_at(root: Path) -> Package | None:
    """The package that is installed in `root`, or that `root` is a checkout of."""
    version = next((match[1] for match in map(_DIST_INFO.fullmatch, _names(root)) if match), None)
    if version is not None:
        return Package(f"nemo-gym=={version}")
    return Package("nemo-gym", root) if _is_checkout(root) else None


def plan_family(package: Package, python: BaseImage) -> ImagePlan:
    """The image that all servers of one package stand on."""
    context = Context(dict(sorted(_family_files(package))))
    variables = {
        "is_checkout": package.checkout is not None,
        "lock": next((name for name in context.files if name == _lock(package)), ""),
        "requirement": package.requirement if package.checkout is None else "/tmp/nemo-gym",
        "along": ALONG,
    }
    dockerfile = Dockerfile((bundled() / "templates" / "Dockerfile.nemo_gym").read_text("utf-8"), variables)
    digest = context.digest()
    return ImagePlan(
        repository=REPOSITORY,
        inputs=inputs_hash(python.id, dockerfile, digest),
        dockerfile=dockerfile,
        context=context,
        context_digest=digest,
        parent=python.reference,
        kind="base",
        source=package.source,
    )


def plan_nemo_gym(config: Config, python: BaseImage) -> list[ImagePlan]:
    """The images of all NeMo Gym servers of a config: each family base before the servers on it."""
    families: dict[Package, ImagePlan] = {}
    servers: list[ImagePlan] = []
    for folder, block, names in folders(config, "nemo_gym"):
        package = package_of(block)
        family = families.setdefault(package, plan_family(package, python))
        servers.append(
            plan_server(
                *(folder, block.kind, block.implementation, family.tag, names),
                dockerfile_of=partial(server_dockerfile, package=package, place=place(block)),
            )
        )
    return [*families.values(), *servers]


def unused_locks(config: Config) -> list[Path]:
    """Locks in folders of NeMo Gym's: what they need is met by the family base first, which
    such a lock knows nothing of."""
    found = (folder / locked_requirements.FILE for folder, _, _ in folders(config, "nemo_gym"))
    return [file for file in found if file.is_file()]


def place(block: ServerBlock) -> str:
    """Where a server's folder lies below `ROOT`."""
    return block.folder.resolve().relative_to(_root(block)).as_posix()


def _root(block: ServerBlock) -> Path:
    """The folder that holds `<kind>/<implementation>`, or `<kind>/<group>/<implementation>`."""
    parents = block.folder.resolve().parents
    return next((one.parent for one in parents if one.name == block.kind), parents[1])


def server_dockerfile(context: Context, *, package: Package, place: str) -> Dockerfile:
    """The template for a server folder's files of packages. A Dockerfile of the folder's own builds something
    else (a sandbox, a tool): NeMo Gym does not run servers in containers."""
    template = (bundled() / "templates" / "Dockerfile.nemo_gym_server").read_text("utf-8")
    requirements = next((name for name in REQUIREMENT_FILES if name in context.files), "")
    text = context.files[requirements].read_text("utf-8", "replace") if requirements else ""
    variables = {
        "place": place,
        "requirements": requirements,
        "overrides": "overrides.txt" if "overrides.txt" in context.files else "",
        "package": package.requirement.replace("nemo-gym", f"nemo-gym{_extras(text)}", 1),
        "programs": " ".join(_system_packages(context, text)),
    }
    return Dockerfile(template, variables)


def _system_packages(context: Context, requirements: str) -> list[str]:
    """Debian packages that the folder's code or its Python packages are at a loss without."""
    has_git = _FROM_GIT.search(requirements) is not None or _runs_git(context)
    asked = {name.lower() for name in _ASKED.findall(requirements)}
    libraries = [library for name in sorted(asked & {*LIBRARIES}) for library in LIBRARIES[name]]
    return [*(["git"] if has_git else []), *dict.fromkeys(libraries)]


def _extras(requirements: str) -> str:
    """What a folder asks for beside the package itself. `dev` is for who works on NeMo Gym."""
    asked = {extra.strip() for match in _LINE.finditer(requirements) for extra in (match[1] or "").split(",")}
    extras = sorted(asked - {"", "dev", "all"} | ({"sandbox"} if "all" in asked else set()))
    return f"[{','.join(extras)}]" if extras else ""


def _runs_git(context: Context) -> bool:
    """Some servers clone what they judge with when they start."""
    code = (file for name, file in context.files.items() if name.endswith(".py"))
    return any(_RUNS_GIT.search(file.read_text("utf-8", "replace")) for file in code)


def _family_files(package: Package) -> Iterator[tuple[str, Path]]:
    root = bundled()
    yield "uv.lock", root / "server_images" / "uv.lock"
    yield from base_scripts().items()
    yield "with_compiler.sh", root / "scripts" / "with_compiler.sh"
    yield "nemo_gym_part.py", PACKAGE / "servers" / "nemo_gym_part.py"
    lock = root / "server_images" / _lock(package)
    if lock.is_file():
        yield lock.name, lock
    if package.checkout is not None:
        yield from checkout_files(package.checkout)


def _lock(package: Package) -> str:
    """The file of locked packages for the one version that has been tried."""
    return f"{package.requirement.replace('==', '-')}.lock"


def _is_checkout(root: Path) -> bool:
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8")).get("project", {})
    except (OSError, ValueError):
        return False
    return _LINE.fullmatch(str(project.get("name", ""))) is not None


def _names(folder: Path) -> Iterator[str]:
    try:
        yield from (entry.name for entry in folder.iterdir())
    except OSError:
        return


def _requirements(folder: Path) -> str:
    for name in REQUIREMENT_FILES:
        try:
            return (folder / name).read_text("utf-8", "replace")
        except OSError:
            continue
    return ""
