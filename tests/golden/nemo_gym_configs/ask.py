"""Ask NeMo Gym's own parser what every config means, and keep its answers as golden file.

    python tests/golden/nemo_gym_configs/ask.py [--only PREFIX] [--output FILE]

It runs in an interpreter that holds `nemo-gym`; gymctl is not needed there. NeMo Gym 0.7.0 asks for Python
3.13.14 or later, which Debian sid packages:

    mmdebstrap --variant=apt --include=python3.13,python3.13-venv,ca-certificates sid ROOT
    chroot ROOT python3.13 -m venv /opt/peer
    chroot ROOT /opt/peer/bin/pip install hydra-core omegaconf openai==2.44.0 pydantic rich packaging
    chroot ROOT /opt/peer/bin/pip install --no-deps nemo-gym==0.7.0 ray
    cp -r tests/golden/nemo_gym_configs ROOT/opt/ask
    chroot ROOT /opt/peer/bin/python /opt/ask/ask.py --output /opt/ask/answers.jsonl.xz

(`--no-deps`: the parser reads the version of ray and imports nothing else that is left out; with an old
copy of the archive add `--aptopt='Acquire::Check-Valid-Until "false"'`.) Each case goes through the command
line of `gym env start` up to the parsed config, without ports being probed, and is then resolved as
`gym env resolve` does.

The file holds keys, numbers and short texts without blanks; any other text is there as a digest.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import lzma
import multiprocessing
import os
import re
import sys
import tempfile
from importlib.metadata import files, version
from pathlib import Path
from typing import Any

import cases
import leaves
import own

_MOST_ROUNDS = 60
_PARSED: dict[tuple[str, ...], Any] = {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases whose id starts so")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("answers.jsonl.xz"))
    options = parser.parse_args()
    shipped = [str(path) for path in files("nemo-gym") or () if path.suffix in (".yaml", ".yml")]
    work = Path(tempfile.mkdtemp()).resolve()
    _write_folders(work)
    asked = [case for case in cases.all_cases(shipped) if case["id"].startswith(options.only)]
    _only_this_environment(work)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answered = pool.imap(_Asker(work), asked, chunksize=1)
        lines = [
            json.dumps(
                {
                    "peer": version("nemo-gym"),
                    "files": len(shipped),
                    "folders": own.folders(),
                    "environment": cases.ENVIRONMENT,
                }
            )
        ]
        for number, group in enumerate(answered, start=1):
            lines += [json.dumps(line, separators=(",", ":"), sort_keys=True) for line in group]
            if number % 50 == 0:
                print(f"{number} of {len(asked)}", file=sys.stderr, flush=True)
    options.output.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))


def _write_folders(work: Path) -> None:
    for folder, texts in own.folders().items():
        (work / folder).mkdir()
        for name, text in texts.items():
            path = work / folder / name
            path.write_text(text, encoding="utf-8")


def _only_this_environment(work: Path) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    os.environ.clear()
    os.environ.update(kept | cases.ENVIRONMENT)
    os.chdir(work)
    import nemo_gym.cli.main
    import nemo_gym.global_config  # noqa: F401  (imported once, before the processes are made)


class _Asker:
    """Runs a case as it is and, where it only lacks values, once more with each of them given."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def __call__(self, case: dict[str, Any]) -> list[dict[str, Any]]:
        # A process answers many cases: the parser keeps nothing between two parses but handlers of logging.
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        answer, wanted = self._ask(case)
        answers = [{**case, **answer}]
        filled = list(case["overrides"])
        for _ in range(_MOST_ROUNDS):
            new = [key for key in wanted if "[" not in key and f"++{key}={cases.MARKER}" not in filled]
            if not new:
                break
            filled += [f"++{key}={cases.MARKER}" for key in new]
            answer, wanted = self._ask({**case, "overrides": filled})
        if len(filled) > len(case["overrides"]):
            answers.append({**case, "id": f"{case['id']} (filled)", "overrides": filled, **answer})
        return answers

    def _ask(self, case: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        from nemo_gym.config_types import ConfigError

        os.chdir(self.work / case["folder"])
        try:
            config = _parsed(case)
        except SystemExit as error:
            return {"error": "UsageError" if error.code == 2 else "exit"}, []
        except ConfigError as error:
            return {"error": type(error).__name__}, _wanted(error)
        except Exception as error:  # noqa: BLE001  (a crash is an answer)
            return {"error": f"crash {type(error).__name__}"}, []
        import nemo_gym

        places = {
            str(self.work / case["folder"]): "<work>",
            str(self.work): "<work>",
            str(Path(nemo_gym.__file__).parent.parent): "<wheel>",
        }
        return {"document": leaves.document(config, places)}, []


def _wanted(error: Exception) -> list[str]:
    """The keys that a message asks for."""
    text = str(error)
    if type(error).__name__ == "ConfigMissingValuesError":
        return re.findall(r"^  - (.+)$", text, re.MULTILINE)
    if type(error).__name__ == "ConfigInterpolationError":
        return re.findall(r"^  \+\+(.+)=<value>$", text, re.MULTILINE)
    return []


def _parsed(case: dict[str, Any]) -> dict[str, Any]:
    from nemo_gym import global_config as peer
    from omegaconf import OmegaConf
    from omegaconf.errors import InterpolationResolutionError

    parser = _parser(_tokens(case), "config_paths" in " ".join(case["overrides"]))
    try:
        config = parser.parse(peer.GlobalConfigDictParserConfig(offline=True))
        parser.raise_on_no_server_instances(config)
        resolved = OmegaConf.to_container(config, resolve=True)
    except InterpolationResolutionError as error:
        raise peer.translate_interpolation_error(error) from error
    assert isinstance(resolved, dict)
    return resolved


def _parser(tokens: list[str], is_exact: bool) -> Any:
    """The peer's parser for these tokens. Hydra takes most of the time, so that its answer is kept for tokens
    that differ in the list of paths only, which then is put in as it was given."""
    from nemo_gym import global_config as peer

    given = [token for token in tokens if not token.startswith("+config_paths=[")]
    paths = [token for token in tokens if token not in given]
    if is_exact or not paths:
        sys.argv = ["gym", *tokens]
        return peer.GlobalConfigDictParser()
    if tuple(given) not in _PARSED:
        sys.argv = ["gym", *given]
        _PARSED[tuple(given)] = peer.GlobalConfigDictParser().parse_global_config_dict_from_cli()
    known = copy.deepcopy(_PARSED[tuple(given)])

    class Parser(peer.GlobalConfigDictParser):
        def parse_global_config_dict_from_cli(self) -> Any:
            with open_dict(known):
                known["config_paths"] = paths[0].removeprefix("+config_paths=[").removesuffix("]").split(",")
            return known

    from omegaconf import open_dict

    return Parser()


def _tokens(case: dict[str, Any]) -> list[str]:
    """What the peer's command line makes of flags and tokens: the arguments of Hydra."""
    from nemo_gym.cli import main as cli

    arguments = ["env", "start"]
    for flag in ("config", "benchmark", "environment", "resources_server", "model_type", "agent_type"):
        for value in case.get(flag, ()):
            arguments += [f"--{flag.replace('_', '-')}", value]
    parser = cli.build_parser()
    args, overrides = parser.parse_known_args(arguments)
    overrides += case["overrides"]
    command = cli.COMMANDS["env start"]
    try:
        translated = [token for flag in command.flags for token in flag.translate_to_hydra(args)]
    except ValueError as error:
        args._parser.error(str(error))
    return cli._merge_config_paths(translated + overrides)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
