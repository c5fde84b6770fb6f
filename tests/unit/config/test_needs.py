"""What servers need, told from the text of made-up folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gymctl.config.needs.catalogue import Catalogue, Listed, ListedKind
from gymctl.config.needs.need import MEANINGS
from gymctl.config.needs.requirements import is_met
from gymctl.config.reading.roots import SearchRoots
from gymctl.paths import install_roots

CONFIG = """
{name}:
  resources_servers:
    {name}:
      entrypoint: app.py
      domain: other
"""
Make = Callable[..., Listed]


@pytest.fixture
def listed(tmp_path: Path) -> Make:
    """Write a resources server `far` and list it. `app`, `requirements` and `config` are the texts."""

    def make(app: str = "", requirements: str = "", config: str = "", **more: str) -> Listed:
        write(
            tmp_path / "resources_servers" / "far",
            {
                "app.py": app,
                "requirements.txt": requirements,
                "configs/far.yaml": CONFIG.format(name="far") + config,
                **{name.replace("__", "/").replace("_py", ".py"): text for name, text in more.items()},
            },
        )
        return one(tmp_path, "resources_servers", "far")

    return make


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def one(root: Path, kind: ListedKind, name: str) -> Listed:
    rows = Catalogue(SearchRoots((root,))).listed((kind,))
    return next(row for row in rows if row.name == name)


def told(row: Listed) -> list[tuple[str, str, str]]:
    """Kind, text, and `file:line`."""
    return [
        (need.kind, need.what, f"{Path(need.where.source).name}:{need.where.line}") for need in row.all_needs
    ]


def test_a_plain_server_needs_nothing(listed: Make) -> None:
    row = listed("import re\n\nclass Far:\n    num_gpus: int = 0\n", "-e nemo-gym[dev] @ ../../\nnumpy>=1\n")
    assert told(row) == []
    assert row.family == "nemo_gym"
    assert [flavour.name for flavour in row.flavours] == ["far"]


CODE = {
    "import vllm": ("gpu", "package vllm"),
    "import ray": ("ray", "package ray"),
    "ray_enabled = True": ("ray", "ray_enabled = True"),
    "assert torch.cuda.is_available(), 'no'": ("gpu", "asserts that CUDA is there"),
    "actor = ray.remote(num_gpus=1)(Actor)": ("gpu", "asks for num_gpus=1"),
    "actor.options(resources={'extra_gpu': share})": ("gpu", "asks for resources={'extra_gpu': share}"),
    "model = model.to('cuda:0')": ("gpu", "moves to CUDA"),
    "from nemo_gym.sandbox import AsyncSandbox": ("sandbox", "NeMo Gym's sandbox API"),
    "import docker": ("sandbox", "package docker"),
    "command = ['apptainer', 'exec', image]": ("sandbox", "the program apptainer"),
    "rows = datasets.load_dataset('a/b')": ("network", "load_dataset"),
    "nltk.download('punkt')": ("network", "nltk.download"),
    "subprocess.run(['git', 'clone', URL], check=True)": ("network", "git clone"),
    "command = f'cd {here} && git clone x'": ("network", "git clone"),
    "SEARCH_URL = 'https://search.test/v1'": ("network", "search.test"),
    "answer = await session.get(f'https://search.test/{query}')": ("network", "search.test"),
    "from tavily import AsyncTavilyClient": ("network", "the service Tavily"),
    "key = os.environ['EXA_API_KEY']": ("key", "EXA_API_KEY"),
    "key = os.getenv('EXA_API_KEY')": ("key", "EXA_API_KEY"),
    "if not shutil.which('libreoffice'): pass": ("programs", "libreoffice"),
}


@pytest.mark.parametrize("line", CODE)
def test_a_line_of_code_shows_a_need(listed: Make, line: str) -> None:
    kind, what = CODE[line]
    assert told(listed(f"import re\n{line}\n")) == [(kind, what, "app.py:2")]


@pytest.mark.parametrize(
    "line",
    [
        "is_there = torch.cuda.is_available()",
        "actor = ray.remote(num_gpus=0)(Actor)",
        "'''Use https://search.test/v1, or git clone it.'''",
        "SCHEMA = 'https://search.test/v1'",
        "HELP_URL = 'http://localhost:80'",
        "subprocess.run([sys.executable, 'x.py'])",
        "level = os.environ.get('EXA_API_KEY', 'none')",
        "home = os.environ['HOME']",
        "if __name__ == '__main__':\n    import vllm",
    ],
)
def test_a_line_that_only_looks_like_it_does_not(listed: Make, line: str) -> None:
    assert told(listed(f"import re\n{line}\n")) == []


def test_only_what_the_entrypoint_imports_counts(listed: Make) -> None:
    row = listed(
        "def f():\n    from resources_servers.far import near\n",
        near_py="from .deep.down import *\n",
        deep__down_py="import vllm\n",
        prepare_py="import docker\n",
    )
    assert told(row) == [("gpu", "package vllm", "down.py:1")]


def test_what_happens_when_it_starts_is_said(listed: Make) -> None:
    row = listed("class Far:\n    def model_post_init(self, context):\n        nltk.download('punkt')\n")
    assert told(row) == [("network", "nltk.download at start", "app.py:3")]


def test_only_an_import_at_the_top_is_certain(listed: Make) -> None:
    assert [need.is_certain for need in listed("import vllm\n").needs] == [True]
    assert [need.is_certain for need in listed("def f():\n    import vllm\n").needs] == [False]


def test_requirements_show_needs(listed: Make) -> None:
    row = listed(
        requirements=(
            "# vllm\nnemo-gym[dev,sandbox] @ ../..\nvllm>=0.9\n"
            "far @ git+https://host.test/far.git@abc  # pinned\nplaywright\n"
        )
    )
    assert told(row) == [
        ("gpu", "package vllm", "requirements.txt:3"),
        ("sandbox", "packages of sandbox providers", "requirements.txt:2"),
        ("git", "git+https://host.test/far.git", "requirements.txt:4"),
        ("programs", "a browser (playwright)", "requirements.txt:5"),
    ]


def test_a_project_file_shows_needs(listed: Make, tmp_path: Path) -> None:
    project = (
        '[project]\nname = "far"\nrequires-python = ">=3.14"\ndependencies = [\n  "vllm",\n  "far",\n]\n'
        '[tool.uv.sources]\nfar = { git = "https://host.test/far.git" }\n'
    )
    write(tmp_path / "resources_servers" / "far", {"pyproject.toml": project})
    assert told(listed()) == [
        ("gpu", "package vllm", "pyproject.toml:5"),
        ("git", "https://host.test/far.git", "pyproject.toml:9"),
        ("python", ">=3.14", "pyproject.toml:3"),
    ]


@pytest.mark.parametrize(
    ("wanted", "version", "is_right"),
    [
        (">=3.13.14", (3, 13, 99), True),
        (">=3.14", (3, 13, 99), False),
        (">=3.10,<3.13", (3, 13, 99), False),
        (">=3.10, <4", (3, 13, 99), True),
        ("==3.13.*", (3, 13, 99), True),
        ("==3.12.*", (3, 13, 99), False),
        ("~=3.12", (3, 13, 99), True),
        ("~=3.12.1", (3, 13, 99), False),
        ("!=3.13.*", (3, 13, 99), False),
        ("<=3.13", (3, 13, 0), True),
        (">3.13", (3, 13, 0), False),
        ("whatever", (3, 13, 0), True),
    ],
)
def test_python_versions(wanted: str, version: tuple[int, ...], is_right: bool) -> None:
    assert is_met(wanted, version) is is_right


def test_a_second_model_is_a_judge(listed: Make) -> None:
    model = "model_server: {type: responses_api_models, name: policy_model}\n      "
    judge = "judge_model_server: {type: responses_api_models, name: referee}\n"
    assert told(listed(config=f"      {model}")) == []
    assert told(listed(config=f"      {model}{judge}")) == [
        ("judge", "judge_model_server: referee", "far.yaml:8")
    ]


def test_a_field_without_default_counts_where_no_config_sets_it(listed: Make) -> None:
    app = (
        "class FarConfig(BaseResourcesServerConfig):\n"
        "    judge: ModelServerRef\n    spare: ModelServerRef | None = None\n"
        "    far_api_key: str\n    max_token: str\n"
    )
    assert told(listed(app)) == [("judge", "judge", "app.py:2"), ("key", "far_api_key", "app.py:4")]
    judge = "      judge: {type: responses_api_models, name: policy_model}\n"
    given = f"{judge}      far_api_key: ${{policy_api_key}}\n"
    assert told(listed(app, config=given)) == [("judge", "judge: policy_model", "far.yaml:7")]


def test_values_that_nobody_gives(listed: Make) -> None:
    config = (
        "      far_api_key: ${far_key}\n      place: ???\n      given: ${other}\n"
        "      inside: ${oc.env:FAR_PLACE}\n      fallback: ${oc.env:FAR_OTHER,none}\n"
        "      url: ${policy_base_url}\nother: 1\n"
    )
    assert told(listed(config=config)) == [
        ("key", "far_key", "far.yaml:7"),
        ("setting", "place", "far.yaml:8"),
        ("setting", "FAR_PLACE", "far.yaml:10"),
    ]


@pytest.mark.parametrize(
    ("config", "what", "line"),
    [
        ("      sandbox_provider: sandbox\n", "a provider `sandbox`", 7),
        ("      sandbox_provider: ${sandbox}\n", "a provider `sandbox`", 7),
        ("      sandbox_provider: box\nbox: {default_metadata: {}, docker: {}}\n", "provider docker", 7),
        ("      sandbox_provider:\n        apptainer: {image: far}\n", "provider apptainer", 8),
        ("      sandbox_provider:\n        apptainer: {}\n", "provider apptainer", 5),
        ("      sandbox_host: 127.0.0.1\n", "a service at `sandbox_host`", 7),
    ],
)
def test_sandboxes_of_a_config(listed: Make, config: str, what: str, line: int) -> None:
    assert told(listed(config=config)) == [("sandbox", what, f"far.yaml:{line}")]


def test_a_sandbox_that_is_switched_off_is_none(listed: Make) -> None:
    assert told(listed(config="      sandbox_provider: null\n")) == []


def test_a_need_of_some_configs_is_told_apart(listed: Make, tmp_path: Path) -> None:
    judged = CONFIG.format(name="far") + "      judge: {type: responses_api_models, name: referee}\n"
    write(tmp_path / "resources_servers" / "far", {"configs/judged.yaml": judged})
    row = listed("import docker\n")
    assert [flavour.name for flavour in row.flavours] == ["far", "far/judged"]
    assert row.is_in_some("judge")
    assert not row.is_in_some("sandbox")


def test_a_benchmark_needs_what_its_servers_need(listed: Make, tmp_path: Path) -> None:
    listed("import vllm\n")
    config = "config_paths:\n- resources_servers/far/configs/far.yaml\n"
    write(
        tmp_path / "benchmarks",
        {"race/config.yaml": config, "race/prompt.yaml": "user: go\n", "prompts/a/b.yaml": "user: go\n"},
    )
    rows = list(Catalogue(SearchRoots((tmp_path,))).listed(("benchmarks",)))
    assert [(row.name, [flavour.name for flavour in row.flavours]) for row in rows] == [("race", ["race"])]
    assert told(rows[0]) == [("gpu", "package vllm", "app.py:1")]


def test_a_higher_root_hides_the_same_name(listed: Make, tmp_path: Path) -> None:
    listed("import vllm\n")
    write(tmp_path / "mine/resources_servers/far", {"app.py": "", "requirements.txt": ""})
    rows = list(Catalogue(SearchRoots((tmp_path / "mine", tmp_path))).listed(("resources_servers",)))
    assert [(row.folder, row.needs, row.flavours) for row in rows] == [
        (tmp_path / "mine/resources_servers/far", (), ())
    ]


def test_code_that_is_no_python_is_passed_over(listed: Make) -> None:
    assert told(listed("def (:\n")) == []


def test_servers_that_come_with_gymctl_need_nothing_that_is_certain() -> None:
    rows = list(Catalogue(SearchRoots(install_roots())).listed())
    assert {row.name for row in rows} >= {"simple_agent", "weather", "openai_model", "arithmetic"}
    kinds = {need.kind for row in rows for need in row.all_needs}
    assert kinds <= {"setting"}, [need for row in rows for need in row.all_needs]


def test_every_need_is_explained() -> None:
    assert all(meaning and not meaning.endswith(".") for meaning in MEANINGS.values())
