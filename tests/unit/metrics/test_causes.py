"""What an evaluation tells of a failure: the words of the server where it began."""

import json

from gymctl.metrics.causes import SHOWN, cause


def wrapped(body: str, server: str) -> str:
    return json.dumps(f"Hit an exception in X___{server} calling an inner server: {body.encode()!r}")


def failed(body: str) -> dict[str, object]:
    return {"_ng_failure_message": "500 Internal Server Error", "_ng_failure_response_body": body}


def test_the_innermost_error_is_told():
    said = """LookupError("no script fits: 'Oslo'")"""
    assert cause(failed(wrapped(wrapped(json.dumps(said), "policy_model"), "agent"))) == said


def test_the_message_of_an_upstream_is_told():
    body = wrapped(wrapped('{"error": {"message": "slow down"}}', "policy_model"), "agent")
    assert cause(failed(body)) == "slow down"


def test_of_a_refused_body_the_field_is_told():
    detail = [{"type": "missing", "loc": ["body", "episode_id"], "msg": "Field required", "input": {}}]
    assert cause(failed(json.dumps({"detail": detail}))) == "body.episode_id: Field required"
    cut = json.dumps({"detail": [{**detail[0], "input": "x" * 3000}]}, separators=(",", ":"))[:2000]
    assert cause(failed(cut)) == "body.episode_id: Field required"


def test_a_missing_route_is_told():
    assert cause(failed(wrapped('{"detail":"Not Found"}', "agent"))) == "Not Found"


def test_an_agent_that_an_environment_server_quotes_is_told():
    said = wrapped(json.dumps("ValueError('no such vault')"), "vault_agent")
    assert (
        cause({"_ng_failure_message": f"the agent said {said.encode()!r}"}) == "ValueError('no such vault')"
    )


def test_a_body_that_was_cut_off_is_told_as_far_as_it_goes():
    body = wrapped(json.dumps("RuntimeError('" + "x" * 3000), "agent")[:2000]
    assert len(cause(failed(body))) == SHOWN


def test_it_is_one_printable_line():
    assert cause(failed(json.dumps("two\nlines \x1b[31mred"))) == "two lines ?[31mred"
    assert cause({"_ng_failure_message": None}) == ""
