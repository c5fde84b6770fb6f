"""What the code of a server says: its entrypoint, and what that imports from its own search root."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gymctl.config.needs.need import Need, NeedKind
from gymctl.config.needs.requirements import GPU_PACKAGES
from gymctl.config.server_classes import newer_python
from gymctl.errors import Place

SANDBOX_PACKAGES = frozenset({"docker", "daytona", "e2b", "opensandbox", "modal", "nemo_gym.sandbox"})
SANDBOX_PROGRAMS = frozenset({"docker", "podman", "apptainer", "singularity", "enroot"})
COMMON_PROGRAMS = frozenset(
    {"python", "python3", "bash", "sh", "uv", "pip", "kill", "cp", "mkdir", "timeout"}
)
SERVICES = {
    "tavily": "Tavily",
    "exa_py": "Exa",
    "anthropic": "Anthropic",
    "boto3": "AWS",
    "parallel": "Parallel",
}
DOWNLOADS = frozenset(
    {
        "load_dataset",
        "snapshot_download",
        "hf_hub_download",
        "from_pretrained",
        "urlretrieve",
        "download_model",
        "nltk.download",
        "get_human_eval_plus",
        "get_mbpp_plus",
    }
)
RUNNERS = frozenset(
    {
        "run",
        "Popen",
        "call",
        "check_call",
        "check_output",
        "create_subprocess_exec",
        "which",
        "subprocess_run",
    }
)
ASKERS = frozenset({"get", "post", "request", "urlopen", "Request", "fetch", "stream"})
START = re.compile(r"ensure|setup|install|model_post_init|__init__|lifespan|startup|prefetch|warm")
_ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]+\.[a-z]{2,})(?=[/:?]|$)")
_ADDRESS_NAME = re.compile(r"url|endpoint|host|base|api|repo", re.IGNORECASE)
_COMMAND_NAME = re.compile(r"cmd|command|script", re.IGNORECASE)
_KEY_NAME = re.compile(r"(api_?key|token|secret|password|_key|_pat)$", re.IGNORECASE)
_NO_KEY_NAME = re.compile(r"(max|num|stop|pad|eos|bos|min|total|per)_.*token$|^token$", re.IGNORECASE)
_SHELL = re.compile(r"\b(git clone|apt-get install|apt install|npm install|npm i -g)\b")
_NOWHERE = re.compile(r"(^|\.)(example\.(com|org|net)|localhost|w3\.org|json-schema\.org)$")


@dataclass
class Code:
    """The files of a search root; each is parsed and looked through once."""

    root: Path
    _seen: dict[Path, tuple[tuple[Need, ...], tuple[Path, ...]]] = field(default_factory=dict)

    def needs(self, folder: Path, entrypoint: str) -> Iterator[Need]:
        """Of the entrypoint and what it imports from its folder and from servers of its kind, wherever in a
        file the import stands. Fields without a default count in its own folder only."""
        ahead, reached = [folder / entrypoint], set[Path]()
        while ahead:
            file = ahead.pop(0)
            if file in reached:
                continue
            reached.add(file)
            found, imported = self._of_file(file, folder)
            is_own = file.is_relative_to(folder)
            yield from (need for need in found if is_own or need.kind not in ("key", "judge"))
            ahead += (other for other in imported if other.is_relative_to(folder.parent))

    def _of_file(self, file: Path, folder: Path) -> tuple[tuple[Need, ...], tuple[Path, ...]]:
        if file not in self._seen:
            try:
                tree = _parsed(file)
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                self._seen[file] = (), ()
            else:
                imported = tuple(dict.fromkeys(_imported(tree, file, (folder, self.root))))
                self._seen[file] = tuple(_Reader(file).needs(tree, ())), imported
        return self._seen[file]


def _parsed(file: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about backslashes: not ours to tell
        return newer_python.parse(file.read_bytes())


def _imported(tree: ast.Module, file: Path, places: tuple[Path, ...]) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(alias.name, places)
        elif isinstance(node, ast.ImportFrom):
            bases = (file.parents[node.level - 1],) if node.level else places
            names = [node.module] if node.module else []
            names += [".".join((*names[:1], alias.name)) for alias in node.names]
            for name in names:
                yield from _files(name, bases)


def _files(dotted: str, places: tuple[Path, ...]) -> Iterator[Path]:
    parts = dotted.split(".")
    if parts[0] in ("nemo_gym", "gymctl") or "tests" in parts:
        return
    for place in places:
        target = place.joinpath(*parts)
        for file in (target.with_name(f"{target.name}.py"), target / "__init__.py"):
            if file.is_file():
                yield file
                return


@dataclass(frozen=True)
class _Reader:
    """The needs of one file; `inside` are the names of the classes and functions around a node."""

    file: Path

    def needs(self, node: ast.AST, inside: tuple[str, ...]) -> Iterator[Need]:
        for child in ast.iter_child_nodes(node):
            if _is_main_guard(child) or _is_docstring(child):
                continue
            yield from self._of(child, inside)
            is_scope = isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            yield from self.needs(child, (*inside, child.name) if is_scope else inside)

    def _need(self, kind: NeedKind, what: str, node: ast.AST, *, is_certain: bool = False) -> Need:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        return Need(kind, what, Place.at(str(self.file), line, column), is_certain)

    def _of(self, node: ast.AST, inside: tuple[str, ...]) -> Iterator[Need]:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield from self._of_import(alias.name, node, inside)
            case ast.ImportFrom(module=str(module), level=0):
                yield from self._of_import(module, node, inside)
            case ast.Call():
                yield from self._of_call(node, inside)
            case ast.List(elts=[ast.Constant(value=str(program)), _, *_]) if program in SANDBOX_PROGRAMS:
                yield self._need("sandbox", f"the program {program}", node)
            case ast.Assert(test=ast.Call(func=function)) if _dotted(function).endswith("cuda.is_available"):
                yield self._need("gpu", "asserts that CUDA is there", node)
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                if _dotted(value).endswith("environ") and is_key(name):
                    yield self._need("key", name, node)
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield from self._of_field(node, name, inside)
            case ast.Assign(targets=[ast.Name(id="ray_enabled")], value=ast.Constant(value=True)):
                yield self._need("ray", "ray_enabled = True", node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _COMMAND_NAME.search(name):
                yield from self._of_shell(_constant_text(value), node, inside)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _ADDRESS_NAME.search(name):
                yield from self._addresses(value, inside)

    def _of_import(self, module: str, node: ast.AST, inside: tuple[str, ...]) -> Iterator[Need]:
        package = module.split(".")[0]
        if package.replace("_", "-") in GPU_PACKAGES:
            yield self._need("gpu", f"package {package}", node, is_certain=not inside)
        if package in SANDBOX_PACKAGES or (module + ".").startswith("nemo_gym.sandbox."):
            what = "NeMo Gym's sandbox API" if package == "nemo_gym" else f"package {package}"
            yield self._need("sandbox", what, node)
        if package == "ray":
            yield self._need("ray", "package ray", node)
        if package in SERVICES:
            yield self._need("network", f"the service {SERVICES[package]}", node)

    def _of_call(self, node: ast.Call, inside: tuple[str, ...]) -> Iterator[Need]:
        dotted = _dotted(node.func)
        name = dotted.rpartition(".")[2]
        if name in DOWNLOADS or dotted in DOWNLOADS:
            yield self._need("network", f"{dotted if dotted in DOWNLOADS else name}{_when(inside)}", node)
        if name in RUNNERS:
            yield from self._of_command(node, inside)
        if name in ASKERS:
            for argument in node.args:
                yield from self._addresses(argument, inside)
        first = node.args[0] if node.args else None
        text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
        is_lookup = dotted.endswith(("environ.get", "getenv"))
        if is_lookup and len(node.args) == 1 and text.endswith("API_KEY"):
            yield self._need("key", text, node)
        if (name == "to" and text.startswith("cuda")) or (name == "cuda" and not node.args):
            yield self._need("gpu", "moves to CUDA", node)
        for keyword in node.keywords:
            if _asks_for_gpu(keyword):
                yield self._need("gpu", f"asks for {ast.unparse(keyword)[:60]}", node)

    def _of_command(self, node: ast.Call, inside: tuple[str, ...]) -> Iterator[Need]:
        """A program that is run: `["git", "clone", …]`, `"apt-get install …"`, `which("lake")`."""
        if node.args and isinstance(node.args[0], ast.JoinedStr):
            yield from self._of_shell(_constant_text(node.args[0]), node, inside)
        words = _words(node)
        if words[:2] == ["git", "clone"]:
            yield self._need("network", f"git clone{_when(inside)}", node)
        elif words and " " in words[0]:
            yield from self._of_shell(words[0], node, inside)
        elif words:
            program = words[0].rpartition("/")[2]
            if program in SANDBOX_PROGRAMS:
                yield self._need("sandbox", f"the program {program}", node)
            elif program not in COMMON_PROGRAMS and re.fullmatch(r"[a-z][\w.+-]*", program):
                yield self._need("programs", program, node)
            if program in ("uv", "pip") and "install" in words:
                yield self._need("network", f"{program} install{_when(inside)}", node)

    def _of_shell(self, text: str, node: ast.AST, inside: tuple[str, ...]) -> Iterator[Need]:
        for found in dict.fromkeys(_SHELL.findall(text)):
            yield self._need("network", f"{found}{_when(inside)}", node)

    def _of_field(self, node: ast.AnnAssign, name: str, inside: tuple[str, ...]) -> Iterator[Need]:
        """Of a config class: another model, or a key, that has no default."""
        is_config = bool(inside) and inside[-1].endswith("Config")
        if is_config and node.value is None:
            annotation = ast.unparse(node.annotation)
            is_open = "None" not in annotation and "Optional" not in annotation
            if "ModelServerRef" in annotation and name != "model_server" and is_open:
                yield self._need("judge", name, node)
            elif is_key(name) and is_open and "str" in annotation.lower():
                yield self._need("key", name, node)
        elif node.value is not None and _ADDRESS_NAME.search(name):
            yield from self._addresses(node.value, inside)

    def _addresses(self, node: ast.expr, inside: tuple[str, ...]) -> Iterator[Need]:
        texts = node.values if isinstance(node, ast.JoinedStr) else [node]
        for text in texts[:1]:
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                match = _ADDRESS.match(text.value)
                if match is not None and not _NOWHERE.search(match[1]):
                    yield self._need("network", f"{match[1]}{_when(inside)}", node)


def _when(inside: tuple[str, ...]) -> str:
    return " at start" if any(START.search(name) for name in inside) else ""


def is_key(name: str) -> bool:
    """Whether a setting or variable of this name holds a secret."""
    return _KEY_NAME.search(name) is not None and _NO_KEY_NAME.search(name) is None


def _asks_for_gpu(keyword: ast.keyword) -> bool:
    match keyword:
        case ast.keyword(arg="num_gpus", value=ast.Constant(value=value)):
            return bool(value)
        case ast.keyword(arg="num_gpus"):
            return True
        case ast.keyword(arg="device", value=ast.Constant(value=str(value))):
            return value.startswith("cuda")
        case ast.keyword(arg="resources", value=ast.Dict(keys=keys)):
            return any(isinstance(key, ast.Constant) and "gpu" in str(key.value) for key in keys)
    return False


def _words(node: ast.Call) -> list[str]:
    """The constant words of a command, up to the first that is none."""
    given = node.args[0].elts if node.args and isinstance(node.args[0], (ast.List, ast.Tuple)) else node.args
    words: list[str] = []
    for part in given:
        if not (isinstance(part, ast.Constant) and isinstance(part.value, str)):
            break
        words.append(part.value)
    return words


def _constant_text(node: ast.expr) -> str:
    """The parts of a text that do not depend on anything."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return " ".join(str(part.value) for part in parts if isinstance(part, ast.Constant))


def _dotted(node: ast.expr) -> str:
    """`a.b.c`; of `f(x).c` it is `.c`."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))


def _is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
