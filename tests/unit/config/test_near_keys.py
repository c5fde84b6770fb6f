"""What is only a warning in blocks of NeMo Gym's servers: keys almost like a field, surprises of YAML."""

from __future__ import annotations

import pytest

from gymctl.config.sources import Selection
from gymctl.config.telling.check import check
from gymctl.errors import ConfigError

FOREIGN = """\
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer
class Settings(BaseResourcesServerConfig):
    max_tries: int = 3
    label: str = "a"
class It(SimpleResourcesServer):
    config: Settings
if __name__ == "__main__":
    It.run_webserver()
"""


@pytest.fixture
def foreign(bench):
    bench.write("resources_servers/weather_tool/app.py", FOREIGN)
    return bench


def warnings(bench, text: str) -> list[str]:
    bench.write("a.yaml", text)
    report = check(Selection(config=("a.yaml",)), cwd=bench.folder, environ={})
    assert report.errors == ()
    return list(report.warnings)


def server(more: str) -> str:
    block = "a:\n  resources_servers:\n    weather_tool:\n      entrypoint: app.py\n      domain: math\n"
    return f"{block}      {more}\n"


def test_a_key_that_a_foreign_class_does_not_declare_is_a_warning_of_check(foreign) -> None:
    [warning] = warnings(foreign, server("max_attempts: 3"))
    assert warning.startswith(
        "`a`: the config class of weather_tool does not declare `max_attempts` (a.yaml:6:7);"
    )
    assert foreign.load("a.yaml").warnings == ()


@pytest.mark.parametrize(
    ("key", "meant"), [("max_trys", "max_tries"), ("num_worker", "num_workers"), ("max_treis", "max_tries")]
)
def test_a_slip_in_a_foreign_block_is_told_once_whatever_is_done_with_it(foreign, key, meant) -> None:
    told = warnings(foreign, server(f"{key}: 3"))
    text = f"`a`: the config class of weather_tool does not declare `{key}` (a.yaml:6:7)"
    assert told == [f"{text}; did you mean `{meant}`?"]
    assert foreign.load("a.yaml").warnings == tuple(told)


@pytest.mark.parametrize("file", ["app.py", "parts/reads.py", "README.md"])
def test_a_key_that_a_file_of_the_server_says_is_no_slip(foreign, file: str) -> None:
    place = foreign.folder / "resources_servers" / "weather_tool" / file
    place.parent.mkdir(exist_ok=True)
    place.write_text((place.read_text() if place.exists() else "") + "\n# max_trys of the block\n")
    foreign.write("a.yaml", server("max_trys: 3"))
    assert foreign.load("a.yaml").warnings == ()


def test_a_key_that_the_file_of_a_base_says_is_no_slip(foreign) -> None:
    foreign.write("resources_servers/base/app.py", f"{FOREIGN}\n# reads max_trys\n")
    derived = "from resources_servers.base.app import It\nclass Mine(It):\n    pass\nMine.run_webserver()\n"
    foreign.write("resources_servers/weather_tool/app.py", f"import nemo_gym\n{derived}")
    foreign.write("a.yaml", server("max_trys: 3\n      num_worker: 2"))
    [warning] = foreign.load("a.yaml").warnings
    assert "`num_worker`" in warning


def test_the_slip_itself_and_longer_words_are_no_use_of_it(foreign) -> None:
    folder = "resources_servers/weather_tool"
    foreign.write(f"{folder}/configs/weather_tool.yaml", server("max_trys: 3"))
    foreign.write(f"{folder}/notes.md", "my_max_trys")
    foreign.write("a.yaml", server("max_trys: 3"))
    assert len(foreign.load("a.yaml").warnings) == 1


def test_an_open_class_takes_any_key(foreign) -> None:
    text = FOREIGN.replace("class WeatherConfig", "from elsewhere import Base\n\n\nclass WeatherConfig")
    foreign.write(
        "resources_servers/weather_tool/app.py", text.replace("(BaseResourcesServerConfig)", "(Base)")
    )
    foreign.write("a.yaml", server("num_worker: 3"))
    assert foreign.load("a.yaml").warnings == ()


def test_a_slip_of_the_entrypoint_or_the_domain_is_named_with_what_it_causes(foreign) -> None:
    slipped = server("label: x").replace("entrypoint", "entrypont").replace("a:\n", "b:\n", 1)
    [warning] = warnings(foreign, server("label: x") + slipped)
    assert warning.startswith("`b` is ignored: it names a server type but has no `entrypoint` (a.yaml:10:7)")
    assert warning.endswith("; did you mean it by `entrypont`?")
    foreign.write("a.yaml", server("host: h\n      port: 1").replace("entrypoint", "entrypont") + slipped)
    with pytest.raises(ConfigError, match="starts no server"):
        foreign.load("a.yaml")
    foreign.write("a.yaml", server("label: x").replace("domain", "domian"))
    with pytest.raises(ConfigError, match="required for resources servers; did you mean it by `domian`"):
        foreign.load("a.yaml")


def test_a_misspelt_entrypoint_makes_no_server_elsewhere_without_a_word(foreign) -> None:
    block = "b:\n  resources_servers:\n    weather_tool: {entrypont: app.py, host: h, port: 1}\n"
    [warning] = warnings(foreign, server("label: x") + block)
    assert warning.endswith("; did you mean it by `entrypont`?")


def test_keys_that_every_server_may_have_are_not_warned_about(foreign) -> None:
    assert warnings(foreign, server("description: d\n      mounts: []\n      num_workers: 1")) == []


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("server_spinup_timeout_second: 9", "server_spinup_timeout_seconds"),
        ("policy_bas_url: http://127.0.0.1", "policy_base_url"),
        ("num_repeat: 3", "num_repeats"),
    ],
)
def test_a_setting_called_almost_like_a_key_is_a_warning_of_check(foreign, line, meant) -> None:
    [warning] = warnings(foreign, f"{line}\n{server('label: x')}")
    assert f"did you mean `{meant}`?" in warning
    assert "(a.yaml:1:1)" in warning


def test_a_setting_that_something_refers_to_is_meant(foreign) -> None:
    assert warnings(foreign, f"policy_bas_url: x\n{server('label: ${policy_bas_url}')}") == []


def test_a_block_with_a_misspelt_server_type_is_a_warning_of_check(foreign) -> None:
    text = server("label: x") + "b:\n  resource_servers:\n    weather_tool: {entrypoint: app.py}\n"
    [warning] = warnings(foreign, text)
    assert "`b` starts no server" in warning
    assert "did you mean `resources_servers`?" in warning


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("label: no", "`no` is the boolean false to YAML"),
        ("label: 0012", "`0012` is the number 10 (octal) to YAML"),
        ("max_tries: 0012", "`0012` is the number 10 (octal) to YAML"),
        ("label: 1:30", "`1:30` is the number 90 (base 60) to YAML"),
        ("label: 1_000", "`1_000` is the number 1000 to YAML"),
    ],
)
def test_b09_a_surprise_of_yaml_is_a_warning_of_check(foreign, more, told) -> None:
    [warning] = warnings(foreign, server(more))
    assert told in warning
    assert "(a.yaml:6:7)" in warning


@pytest.mark.parametrize(
    "more", ["max_tries: 1_000", "verified: no", "label: '0012'", "label: 1e5", "label: 12"]
)
def test_b09_what_fits_its_field_or_is_quoted_is_no_surprise(foreign, more) -> None:
    assert warnings(foreign, server(more)) == []
