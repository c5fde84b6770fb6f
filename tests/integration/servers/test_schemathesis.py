"""Bodies that nobody would think of, made from the OpenAPI of every built-in server: no bug, no hang."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from fakes.openai_upstream import OpenAIUpstream, Reply
from fakes.own_process import own_process
from fakes.ports import held_port
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.runtime.envs import ensure
from gymctl.servers.inprocess import make_part
from gymctl.testing import ScriptedModel, call, serving
from gymctl.transport import Transport

IMAGES = Path(__file__).parents[3] / "server_images"
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
EXAMPLES = 5
HANG_SECONDS = 100
"""A real model answers among them, and the machine may be slow."""

MODEL = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
AGENT = {"agent_server": {"type": "responses_api_agents", "name": "agent"}}
RESOURCES = {"resources_server": {"type": "resources_servers", "name": "weather"}}
STEPPED = {"resources_server": {"type": "resources_servers", "name": "blackjack"}}
TURN = {**AGENT, **RESOURCES, "resources_tool_transports": ["direct_http"], "cleanup_timeout_seconds": 5}
UPSTREAM = {"openai_base_url": "URL/v1", "openai_api_key": "k", "openai_model": "m"}
VLLM = {
    "base_url": "URL/v1",
    "api_key": "k",
    "model": "m",
    "return_token_id_information": False,
    "uses_reasoning_parser": False,
}
SERVERS: dict[str, dict[str, Any]] = {
    "resources_servers/weather": {},
    "resources_servers/counter": {},
    "resources_servers/blackjack": {},
    "responses_api_agents/simple_agent": {**MODEL, **RESOURCES, "max_steps": 2},
    "responses_api_agents/tool_simulation_agent": {**MODEL, **RESOURCES},
    "responses_api_agents/gymnasium_agent": {**MODEL, **STEPPED, "max_steps": 2},
    "environment_servers/legacy_agent": AGENT,
    "environment_servers/single_agent_turn": TURN,
    "environment_servers/single_agent_turn_legacy": TURN,
    "responses_api_models/scripted_model": {},
    "responses_api_models/openai_model": UPSTREAM,
    "responses_api_models/azure_openai_model": {
        **UPSTREAM,
        "openai_base_url": "URL/ng-rollout/openai/v1",  # taken as it is, for it has `openai` in its path
        "default_query": {"api-version": "1"},
        "num_concurrent_requests": 8,
    },
    "responses_api_models/inference_provider": {"base_url": "URL/v1", "api_key": "k", "model": "m"},
    "responses_api_models/vllm_model": VLLM,
    "responses_api_models/litellm_model": {**UPSTREAM, "openai_base_url": "PROXY/v1"},
}
PROCESSES: dict[str, tuple[Selection, dict[str, Any]]] = {
    "resources_servers/reasoning_tasks": (
        Selection(resources_server=("reasoning_tasks",), model_type="scripted_model"),
        {"domain": "math"},
    ),
    "responses_api_agents/openai_agents_agent": (
        Selection(benchmark=("weather",), agent_type="openai_agents_agent", model_type="scripted_model"),
        {**MODEL, **RESOURCES, "max_turns": 2},
    ),
    "responses_api_models/llama_cpp_model": (
        Selection(model_type="llama_cpp_model"),
        # A real model: short answers, the same ones each time.
        {"context": 128, "parallel": 2, "threads": 1, "extra_body": {"seed": 7, "max_tokens": 16}},
    ),
}
"""Servers with packages that only an environment of their own has."""
EVERY = [*SERVERS, *PROCESSES]
INSTANCES = {
    "resources_servers/weather": "weather",
    "resources_servers/blackjack": "blackjack",
    "responses_api_agents/simple_agent": "agent",
}
"""Servers that others call, with the name in those ones' blocks."""
DELIBERATE = re.compile(
    r"""ValueError\(.{1,4}the row's city, .* has no weather station"""
    r"|ValueError\('Row has no task id: "
    r"|NotImplementedError\('\w+ has no agent sessions'\)"
    r"|NotImplementedError\('gymnasium_agent plays whole episodes; "
    r"|LookupError\(.no script fits: "
    r"|ValueError\(.{1,4}no task of reasoning_gym: "
    r"|ConversionError\(",
    re.DOTALL,
)
"""The errors that our servers raise on purpose, as the string that an error body is (CONTRACT 3.4): each by
its words, so that a mistake's KeyError or ValueError is not taken for one of them. A `ConversionError` is
only raised with words for the caller."""
INNER = re.compile(r"Hit an exception in \w+ calling an inner server: (b['\"].*)", re.DOTALL)


def script(body: dict[str, Any], number: int) -> Any:
    return call("get_weather", city="Oslo") if number % 2 else "Snow, -4 degrees."


class Silent:
    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...


async def environment_of(selection: Selection, implementation: str) -> Path:
    """The interpreter that the process runtime gives a server."""
    config = load(selection)
    [name] = [name for name, block in config.servers.items() if block.implementation == implementation]
    return (await ensure(config, Silent())).pythons[name]


class Elsewhere:
    """All servers on a loop in a thread of its own: schemathesis is synchronous."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()
        self._thread.start()
        self.urls: dict[str, str] = {}
        self.do(self._start)

    def do(self, make: Callable[[], Awaitable[Any]]) -> Any:
        return asyncio.run_coroutine_threadsafe(make(), self._loop).result(300)  # type: ignore[arg-type]

    async def _start(self) -> None:
        enter = self._stack.enter_async_context
        urls = {"policy_model": (await enter(ScriptedModel(script))).url}
        proxy = await enter(OpenAIUpstream())
        proxy.pages["/health/readiness/details"] = Reply(body={"litellm_version": "1.83.0"})
        for image, block in SERVERS.items():
            text = json.dumps(block).replace("URL", urls["policy_model"])
            filled = json.loads(text.replace("PROXY", proxy.url.removesuffix("/v1")))
            server = await enter(serving(IMAGES / image, filled, servers=urls))
            self.urls[image] = server.url
            if image in INSTANCES:
                urls[INSTANCES[image]] = server.url
        transport = await enter(Transport())
        for image, (selection, block) in PROCESSES.items():
            kind, implementation = image.split("/")
            part = make_part(implementation, kind, implementation, block, urls)  # type: ignore[arg-type]
            part = part.model_copy(update={"bind_port": self._stack.enter_context(held_port())})
            python = await environment_of(selection, implementation)
            file = self._folder / f"{implementation}.json"
            self.urls[image] = await enter(own_process(part, IMAGES / image, python, file, transport))

    def end(self) -> None:
        self.do(self._stack.aclose)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    made = Elsewhere(tmp_path_factory.mktemp("parts"))
    yield made
    made.end()


def is_bug(answer: requests.Response) -> bool:
    if answer.status_code < 500 or answer.status_code in (501, 503):
        return False
    return answer.status_code != 500 or not is_deliberate(answer.content)


def is_deliberate(body: bytes) -> bool:
    """Also of an error of a server behind the one that was asked: a relayed mistake is a mistake. What a real
    model refuses (`max_tokens` beyond 32 bits) is none of ours."""
    try:
        said = json.loads(body)
    except ValueError:
        return False
    if isinstance(said, dict) and said.get("type") == "error":  # Anthropic's form, on /v1/messages
        said = said["error"]["message"]
    if not isinstance(said, str):
        return False
    inner = INNER.fullmatch(said)
    if inner is None:
        return DELIBERATE.match(said) is not None
    behind = ast.literal_eval(inner[1])
    return behind.startswith((b'{"detail":', b'{"error":{"code":4')) or is_deliberate(behind)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("KeyError('city')", False),
        ("ValueError('too many values to unpack')", False),
        ("ValueError('Row has no task id: none of task_id')", True),
        ("Hit an exception in A___a calling an inner server: b'\"KeyError(1)\"'", False),
        ("Hit an exception in A___a calling an inner server: b'{\"detail\":[]}'", True),
        ('Hit an exception in A___a calling an inner server: b\'{"error":{"code":400}}\'', True),
        ('Hit an exception in A___a calling an inner server: b\'{"error":{"code":500}}\'', False),
    ],
)
def test_a_mistake_is_not_taken_for_an_error_on_purpose(said: str, expected: bool) -> None:
    assert is_deliberate(json.dumps(said).encode()) is expected


@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value
)
@pytest.mark.parametrize("image", EVERY)
def test_no_request_meets_a_bug_or_waits_for_ever(elsewhere: Elsewhere, image: str, mode: Any) -> None:
    url = elsewhere.urls[image]
    document = requests.get(f"{url}/gymctl/openapi.json", timeout=60).json()
    operations = [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]
    posts = [operation for operation in operations if operation.method.upper() == "POST"]
    assert posts, "it has routes"
    for operation in posts:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],  # shrinking a request takes minutes, and schemathesis is flaky at it
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            answer = case.call(base_url=url, timeout=HANG_SECONDS)
            shown = f"{case.as_curl_command()}\n{answer.status_code} {answer.text[:500]}"
            assert not is_bug(answer), shown

        ask()


@pytest.mark.parametrize("image", EVERY)
def test_every_route_is_in_the_document_and_only_tools_in_the_other(elsewhere: Elsewhere, image: str) -> None:
    url = elsewhere.urls[image]
    whole = requests.get(f"{url}/gymctl/openapi.json", timeout=60).json()
    offered = requests.get(f"{url}/openapi.json", timeout=60).json()
    assert whole["openapi"].startswith("3.1")
    own = {"weather": {"/get_weather"}, "counter": {"/increment_counter", "/get_counter_value"}}
    assert set(offered["paths"]) == own.get(Path(image).name, set())
    assert set(offered["paths"]) < set(whole["paths"])
    wrong = requests.post(f"{url}{next(iter(whole['paths']))}", data=b"[]", timeout=60)
    assert wrong.status_code in (405, 422)
    needed: dict[str, set[str]] = {
        "resources_servers": {
            "/seed_session",
            "/verify",
            "/close_session",
            "/aggregate_metrics",
            "/reverify_mode",
        },
        "responses_api_agents": {"/run", "/v1/responses", "/v1/agent_sessions", "/v1/agent_sessions/close"},
        "environment_servers": {"/run", "/aggregate_metrics"},
        "responses_api_models": {"/v1/responses", "/v1/chat/completions", "/v1/messages"},
    }
    stepped = {"/reset", "/step", "/aggregate_metrics"}
    assert (stepped if image.endswith("blackjack") else needed[image.split("/")[0]]) <= set(whole["paths"])
