"""The contract suite: one test for each MUST of CONTRACT 2 to 8, numbered as there, over real HTTP.

    pytest tests/integration/contract                                             our own servers
    pytest tests/integration/contract --contract-target http://127.0.0.1:11000    the project behind that head
    pytest tests/integration/contract --contract-target resources=http://host:1   one server, by role

Without a target the suite starts ONE project of local processes with `gymctl up`, once per session:

    fixture                  server                   what it is
    head_url                 the head                 host view
    resources_url            weather                  stateless; tool `get_weather` with `city`
    tools_url                weather                  as agents dial it
    stateful_url             counter                  state per session; `increment_counter`
    sessions_url             counter                  remembers typed sessions and their close
    step_url                 game                     blackjack, a step-style server
    mcp_url                  weather_over_mcp         `get_weather` over MCP, too
    agent_url                desk_agent               simple_agent with weather and policy_model
    player_url               player                   gymnasium_agent with game
    simulation_url           simulation               tool_simulation_agent with weather
    environment_url          desk_environment_server  legacy_agent, a relay to desk_agent
    native_environment_url   turn_environment_server  single_agent_turn: turn_agent and weather
    rows_url                 row_environment_server   single_agent_turn_legacy: row_agent and weather
    model_url                policy_model             openai_model in front of `upstream`

`target` holds names beside URLs (`target.servers["agent"].name`, role names as in `--contract-target`).
`upstream` is the model endpoint behind policy_model; each test finds it fresh, and plans what it answers:

    async def test_5_1_a_tool_answers(http, resources_url):
        async with http.post(f"{resources_url}/get_weather", json={"city": "Oslo"}) as answer:
            assert answer.status == 200
            jar = cookies_of(answer)                # from fakes.contract import cookies_of, sending
        async with http.post(url, json={...}, headers=sending(jar)) as answer: ...

    async def test_6_2_...(http, agent_url, upstream):
        upstream.plan(Reply(body={...a Response...}))              # from fakes.openai_upstream import Reply
        ...
        assert upstream.posts("/v1/responses") == 1

`http` is an aiohttp session without a cookie jar. A server with another configuration, or with another class,
is served inside the test: `gymctl.servers.inprocess.serving_folder(...)`, `serving(assemble(server))`.

A test whose rule is gymctl's own (idempotency keys, `/gymctl/*`, identity) is marked `ours`, and skipped
for a foreign target. A test that serves a server of its own says nothing about a target and is skipped for
one. So is a test whose role the target does not have, and one that plans the model's answers, unless the
target's model server asks this machine at `--contract-upstream PORT`. Without a target nothing is skipped.
docs/nemo-gym.md says how to run it against NeMo Gym, and what came of it.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from fakes.contract import AGENT_BLOCK, Target, endpoint_in_a_thread, own_project
from fakes.openai_upstream import OpenAIUpstream
from fakes.ports import held_port

from gymctl.paths import bundled
from gymctl.servers.inprocess import serving_folder


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ours: a rule that only gymctl has; skipped for a foreign target")


@pytest.fixture(scope="session")
def _endpoint(request: pytest.FixtureRequest) -> Iterator[OpenAIUpstream]:
    with endpoint_in_a_thread(request.config.getoption("--contract-upstream")) as upstream:
        yield upstream


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    options: list[str] = request.config.getoption("--contract-target")
    if options:
        yield Target.given(options)
        return
    endpoint: OpenAIUpstream = request.getfixturevalue("_endpoint")
    folder = request.getfixturevalue("tmp_path_factory").mktemp("contract")
    with own_project(folder, endpoint.url) as head:
        yield Target.behind_head(head)


@pytest.fixture(autouse=True)
def _only_what_the_target_answers(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--contract-target") and "target" not in request.fixturenames:
        pytest.skip("it serves a server of its own, and says nothing about the target")
    if request.node.get_closest_marker("ours") and not request.getfixturevalue("target").is_ours:
        pytest.skip("the target is foreign, and this rule is gymctl's own")


@pytest.fixture(scope="session")
def head_url(target: Target) -> str:
    if target.head is None:
        pytest.skip("the target was given without a head")
    return target.head


def _url(role: str) -> Callable[[Target], str]:
    @pytest.fixture(scope="session")
    def url(target: Target) -> str:
        if role not in target.servers:
            pytest.skip(f"the target has no server for the role `{role}`")
        return target.servers[role].url

    return url


resources_url = _url("resources")
stateful_url = _url("stateful")


@pytest.fixture(scope="session")
def tools_url(request: pytest.FixtureRequest, resources_url: str) -> str:
    return request.config.getoption("--contract-tools") or resources_url


sessions_url = _url("sessions")
step_url = _url("step")
mcp_url = _url("mcp")
agent_url = _url("agent")
player_url = _url("player")
simulation_url = _url("simulation")
environment_url = _url("environment")
native_environment_url = _url("native")
rows_url = _url("rows")
model_url = _url("model")


@pytest.fixture
async def agent_variant(model_url: str, resources_url: str) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """A simple_agent of our own with other settings, between the target's model and tools."""
    async with AsyncExitStack() as stack:

        async def begin(**settings: Any) -> str:
            neighbours = {"policy_model": model_url, "weather": resources_url}
            folder = bundled() / "server_images/responses_api_agents/simple_agent"
            served = serving_folder(folder, "variant", {**AGENT_BLOCK, **settings}, neighbours)
            return await stack.enter_async_context(served)

        yield begin


@pytest.fixture
def free_port() -> Iterator[int]:
    """Nobody listens there, and nobody else will."""
    with held_port() as port:
        yield port


@pytest.fixture
def fresh() -> str:
    """An id of an agent's session that no other test has used."""
    return f"agent-session-{uuid.uuid4().hex}"


@pytest.fixture
def rollouts() -> Iterator[str]:
    """Rollout ids that no other test has used."""
    run = uuid.uuid4().hex[:8]
    return (f"{run}-{number}" for number in range(100))


@pytest.fixture
def upstream(request: pytest.FixtureRequest) -> OpenAIUpstream:
    options = request.config.option
    if options.contract_target and options.contract_upstream is None:
        pytest.skip("the target's model endpoint is not ours to plan (--contract-upstream PORT)")
    endpoint: OpenAIUpstream = request.getfixturevalue("_endpoint")
    endpoint.reset()
    return endpoint


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar, trust_env=False) as session:
        yield session
