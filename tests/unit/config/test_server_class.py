"""The reading of a server's class from its text, against what Python makes of the same file."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from gymctl.config.server_classes import server_class
from gymctl.config.server_classes.foreign_bases import WITHOUT_EFFECT
from gymctl.config.server_classes.server_class import ServerClass
from gymctl.servers.load import imported

ROOT = Path(__file__).resolve().parents[3]
BUILT_IN = sorted(path.parent for path in (ROOT / "server_images").glob("*/*/app.py"))


def real_class(folder: Path) -> type[BaseModel]:
    """The class that Python makes; the folder's modules are forgotten, so that no other server finds them."""
    before, path = dict(sys.modules), list(sys.path)
    try:
        return imported("app.py", folder).server_class.config_class()
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - set(before):
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@pytest.fixture(scope="module")
def real() -> dict[Path, type[BaseModel]]:
    return {folder: real_class(folder) for folder in BUILT_IN}


@cache
def reading(folder: Path) -> ServerClass:
    return server_class.read(folder)


def read(tmp_path: Path, text: str, **modules: str) -> ServerClass:
    folder = tmp_path / "root" / "resources_servers" / "mine"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(text, encoding="utf-8")
    for name, content in modules.items():
        (folder / f"{name}.py").write_text(content, encoding="utf-8")
    return server_class.read(folder)


@pytest.mark.parametrize("folder", BUILT_IN, ids=lambda folder: folder.name)
def test_the_reading_of_a_built_in_server_is_its_class(folder: Path, real: dict[Path, Any]) -> None:
    told = server_class.read(folder)
    fields = real[folder].model_fields
    assert told.family == "gymctl"
    assert told.is_closed
    assert told.fields.extra == real[folder].model_config["extra"]
    assert list(told.fields.fields) == list(fields)
    for name, field in told.fields.fields.items():
        assert field.is_required == fields[name].is_required()
        if field.default is not None:
            assert field.default == fields[name].default
        elif not field.is_required:
            assert fields[name].default in (None, PydanticUndefined)
        assert field.type is not Any


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 200_000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["", "5", " 5 ", "5.0", "1e3", "1_0", "true", "no", "auto", "chat", "abc", "direct_http"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "name", "latency_ms", "statuses", "500"]), inner, max_size=3
        )
        | st.just({"type": "resources_servers", "name": "weather"})
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("folder", BUILT_IN, ids=lambda folder: folder.name)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_value_is_refused_exactly_where_the_class_refuses_it(
    folder: Path, real: dict[Path, type[BaseModel]], data: st.DataObject
) -> None:
    told = reading(folder)
    keys = sorted(key for key in told.keys if told.fields.fields[key].type != list[Any])
    block = data.draw(st.dictionaries(st.sampled_from(keys), VALUES, max_size=4))
    assert places(told.model, block) == places(real[folder], {**json.loads(json.dumps(block)), "name": "it"})


def places(model: type[BaseModel], block: dict[str, Any]) -> set[tuple[str, str]]:
    """Which fields are refused, and by which rule; validators of a class itself are not told by its text."""
    try:
        model.model_validate(block)
    except ValidationError as error:
        return {
            (str(item["loc"][0]), item["type"]) for item in error.errors() if item["type"] != "value_error"
        }
    return set()


def test_the_style_of_built_in_agents_and_resources_servers_is_known() -> None:
    styles = {folder.name: reading(folder).style for folder in BUILT_IN}
    assert {name for name, style in styles.items() if style == "steps"} == {"gymnasium_agent", "blackjack"}
    unknown = {folder.name for folder in BUILT_IN if styles[folder.name] is None}
    kinds = ("responses_api_models", "environment_servers")
    assert unknown == {folder.name for folder in BUILT_IN if folder.parent.name in kinds}


def test_descriptions_are_read_from_below_the_field_and_from_field() -> None:
    told = server_class.read(ROOT / "server_images/responses_api_agents/simple_agent").fields.fields
    assert told["max_steps"].description == "Model calls per turn; null is unlimited."
    assert told["max_steps"].annotation == "int | None"


def test_modules_of_the_folder_are_followed(tmp_path: Path) -> None:
    told = read(
        tmp_path,
        "from gymctl.servers import ResourcesServer\nfrom settings import Mine\n"
        "class It(ResourcesServer):\n    config: Mine\napp = It.app()\n",
        settings="from gymctl.servers import ResourcesConfig as Base\n"
        "class Mine(Base):\n    depth: 'int' = 3\n    '''How deep.'''\n",
    )
    assert told.is_closed
    assert told.fields.fields["depth"].description == "How deep."
    assert "max_sessions" in told.keys


@pytest.mark.parametrize(
    "text",
    [
        "class C(ResourcesConfig):\n    model_config = ConfigDict(extra='allow')\n",
        "class C(ResourcesConfig):\n    model_config = SOMETHING\n",
        "class C(ResourcesConfig, Unknown):\n    a: int = 1\n",
        "class C(ResourcesConfig):\n    def __init__(self, **data): ...\n",
        "class C(ResourcesConfig):\n    @model_validator(mode='before')\n    def early(cls, data): ...\n",
        "class C(ResourcesConfig):\n    if True:\n        a: int = 1\n",
        "@decorated\nclass C(ResourcesConfig):\n    a: int = 1\n",
    ],
)
def test_a_class_that_does_more_than_declare_is_open(tmp_path: Path, text: str) -> None:
    imports = "from gymctl.servers import ResourcesConfig, ResourcesServer\nfrom pydantic import *\n"
    told = read(tmp_path, f"{imports}{text}\nclass It(ResourcesServer):\n    config: C\napp = It.app()\n")
    assert not told.is_closed
    assert told.model is None


def test_a_server_that_reads_its_block_itself_is_open(tmp_path: Path) -> None:
    told = read(
        tmp_path,
        "from gymctl.servers import ResourcesConfig, ResourcesServer\n"
        "class It(ResourcesServer):\n    config: ResourcesConfig\n"
        "    async def startup(self): self.x = self.part.settings['x']\napp = It.app()\n",
    )
    assert (told.family, told.is_closed) == ("gymctl", False)


def test_what_a_before_validator_lets_through_is_not_refused(tmp_path: Path) -> None:
    told = read(
        tmp_path,
        "from gymctl.servers import ResourcesConfig, ResourcesServer\nfrom pydantic import field_validator\n"
        "class C(ResourcesConfig):\n    a: int = 1\n    b: int = 1\n"
        "    @field_validator('a', mode='before')\n    def early(cls, value): return 1\n"
        "class It(ResourcesServer):\n    config: C\napp = It.app()\n",
    )
    assert told.fields.fields["a"].type is Any
    assert told.fields.fields["b"].type is int


@pytest.mark.parametrize("text", ["", "def (", "\0", "x = 1", "class A(A): ...\napp = A.app()", "import app"])
def test_a_file_that_says_nothing_is_open(tmp_path: Path, text: str) -> None:
    assert not read(tmp_path, text).is_closed


def test_no_file_is_open(tmp_path: Path) -> None:
    assert server_class.read(tmp_path) == ServerClass()


def test_nothing_of_the_server_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    read(
        tmp_path,
        f"open({str(mark)!r}, 'w')\nfrom gymctl.servers import *\nclass A(Server): ...\napp = A.app()",
    )
    assert not mark.exists()


def test_a_server_on_another_sdk_is_read_with_the_fields_of_its_base(tmp_path: Path) -> None:
    told = read(
        tmp_path,
        "from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer\n"
        "from pydantic import Field\n"
        "class C(BaseResourcesServerConfig):\n    tries: int = Field(3, description='How often.')\n"
        "class It(SimpleResourcesServer):\n    config: C\n"
        "if __name__ == '__main__':\n    It.run_webserver()\n",
    )
    assert (told.family, told.is_closed) == ("nemo_gym", True)
    assert {"tries", "entrypoint", "expose_tools_over_mcp"} <= told.keys
    assert told.fields.fields["tries"].description == "How often."


def test_fields_without_effect_are_none_of_our_own() -> None:
    for folder in BUILT_IN:
        told = server_class.read(folder)
        assert not told.keys & WITHOUT_EFFECT.get(folder.parent.name, frozenset())
