"""Secrets by key and by value (CONTRACT 1.15)."""

from __future__ import annotations

import pytest

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.config.tree.masking import MASK, mask, redact, secrets_of


def test_the_rule_of_the_contract() -> None:
    document = {
        "policy_api_key": "sk-1234567",
        "max_output_tokens": 512,
        "tokenizer": "some/model",
        "answer_key": "B",
        "token_id_capture": {"enabled": True, "dir": "/x"},
        "keys": ["a1", "b2"],
        "list": [{"hf_token": "hf-1234567", "name": "n"}, "plain"],
        "name": "policy_model",
    }
    assert mask(document) == {
        "policy_api_key": MASK,
        "max_output_tokens": MASK,
        "tokenizer": MASK,
        "answer_key": MASK,
        "token_id_capture": {"enabled": True, "dir": "/x"},
        "keys": [MASK, MASK],
        "list": [{"hf_token": MASK, "name": "n"}, "plain"],
        "name": "policy_model",
    }


def test_a_token_in_the_path_of_an_index_is_hidden_wherever_it_stands() -> None:
    token = "0f9e8d7c6b5a4d3c"
    urls = [f"https://dl.example.com/{token}/simple", "https://example.com/pypi-remote-2024/simple"]
    document = {"build": {"index_url": urls[0], "extra_index_urls": urls}, "note": f"of {token}"}
    hidden = f"https://dl.example.com/{MASK}/simple"
    build = {"index_url": hidden, "extra_index_urls": [hidden, urls[1]]}
    assert mask(document) == {"build": build, "note": f"of {MASK}"}
    assert secrets_of({"model_base_url": urls[0]}) == frozenset()


@pytest.mark.parametrize(
    "document",
    [
        {"password": "hunter22"},
        {"db_Secret": "hunter22"},
        {"openai_default_headers": {"Authorization": "Bearer hunter22"}},
        {"extra_headers": {"X-Whatever": "hunter22"}},
        {"url": "postgres://user:hunter22@db/x"},
        {"url": "https://user:hunt@hunter22@host/v1"},
        {"url": "https://host/v1?model=a&api_key=hunter22"},
        {"env": {"HF_TOKEN": "hunter22"}},
        {"accessToken": "hunter22"},
        {"args": ["--header", "Authorization: Bearer hunter22"]},
        {"command": "curl -H 'authorization: bearer hunter22' http://x"},
        {"tokens": [{"name": "hunter22"}]},
    ],
)
def test_more_than_the_contract_asks_is_hidden(document) -> None:
    assert "hunter22" not in str(mask(document))


def test_a_secret_is_hidden_wherever_it_is_repeated() -> None:
    document = {
        "policy_api_key": "sk-1234567",
        "command": ["serve", "--key=sk-1234567"],
        "note": "sk-1234567!",
    }
    assert mask(document) == {
        "policy_api_key": MASK,
        "command": ["serve", f"--key={MASK}"],
        "note": f"{MASK}!",
    }


def test_ordinary_words_and_numbers_are_not_hunted() -> None:
    document = {
        "max_output_tokens": "1024576",
        "api_key": "dummy",
        "tokenizer": "some/model",
        "x_key": "EMPTY",
    }
    assert secrets_of(document) == frozenset()


def test_redact_takes_the_longest_secret_first_and_user_info() -> None:
    text = redact("a=secret-long b=secret https://me:pw@host/x", ["secret", "secret-long"])
    assert text == f"a={MASK} b={MASK} https://{MASK}@host/x"


def test_keys_and_passwords_of_urls_are_hidden_where_they_are_repeated() -> None:
    document = {"url": "https://user:hunter22@host/v1?api-key=sk-1234567"}
    assert {"hunter22", "sk-1234567"} <= secrets_of(document)


def test_what_a_url_says_besides_secrets_stays() -> None:
    text = "https://host:8000/v1?max_tokens=5&user=a@b.c#x"
    assert redact(text, []) == text


def test_what_a_list_of_secrets_and_a_bearer_header_hold_is_hidden_wherever_it_is_repeated() -> None:
    document = {"tokens": [{"name": "sk-1234567"}], "args": ["Authorization: Bearer hunter22"]}
    assert secrets_of(document) == {"sk-1234567", "hunter22"}


def test_a_bearer_of_something_else_stays() -> None:
    text = "The bearer certificate is a Bearer instrument; bearer of news"
    assert redact(text, []) == text


def test_redact_without_secrets_changes_nothing() -> None:
    assert redact("plain text", []) == "plain text"


def test_the_original_is_left_alone() -> None:
    document = {"a": {"api_key": "sk-1234567"}}
    mask(document)
    assert document == {"a": {"api_key": "sk-1234567"}}


def test_a_loaded_config_carries_its_secrets(stack) -> None:
    assert stack.load("model.yaml", "weather.yaml").secrets == {"sk-test-0001"}


def test_warnings_of_a_loaded_configuration_hold_no_secret(stack) -> None:
    """Every command prints them; the name of a key may be what another key hides."""
    stack.write("env.yaml", "policy_base_url: http://127.0.0.1:9/v1\npolicy_api_key: sk-canary-0001\n")
    stack.write("odd.yaml", "sk-canary-0001: {responses_api_models: {}}\n")
    selection = Selection(config=("model.yaml", "weather.yaml", "odd.yaml"))
    config = load(selection, cwd=stack.folder, environ={})
    assert any("`****`" in warning for warning in config.warnings)
    assert not any("sk-canary" in warning for warning in config.warnings)
