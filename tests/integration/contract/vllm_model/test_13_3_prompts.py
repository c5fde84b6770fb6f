"""CONTRACT 13.3: `vllm_model` over /completions, with templates of its own, and with audio."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from fakes.vllm_model import HISTORY, TOOL, USER, kinds, sent

from gymctl.errors import ServerError


async def test_13_3_completions_get_the_text_of_one_user_message(vllm, serve):
    model = await serve(use_completions_api=True, extra_body={"top_k": 3})
    vllm.say("<think>hm</think>Paris.")
    answer = await model.responses(
        {"role": "system", "content": "Be brief."}, USER, max_output_tokens=9, metadata={"a": "b"}
    )
    assert kinds(answer) == ["reasoning", "message"]
    assert sent(vllm, "/v1/completions") == {
        "model": "tiny",
        "prompt": "Be brief.\n\nhi",
        "max_tokens": 9,
        "top_k": 3,
    }
    for body, words in (
        ({"input": [USER, HISTORY[2], USER]}, "render_chat_template"),
        ({"input": [USER], "tools": [TOOL]}, "render_chat_template"),
        ({"input": [USER], "metadata": {"audio_data": "data:,"}}, "text only"),
    ):
        status, error = await model.post("/v1/responses", body)
        assert status == 500 and words in error


@pytest.mark.parametrize("tells", [True, False])
async def test_13_3_completions_tell_token_ids(vllm, serve, tells):
    def as_older_servers_do(path: str, answer: dict[str, Any]) -> None:
        if path == "/v1/completions" and not tells:
            del answer["choices"][0]["token_ids"], answer["choices"][0]["prompt_token_ids"]

    vllm.change = as_older_servers_do
    model = await serve(use_completions_api=True, return_token_id_information=True)
    item = (await model.responses())["output"][-1]
    assert item["prompt_token_ids"] == list(b"hi")
    assert item["generation_token_ids"] == list(b"Hi.")
    assert item["generation_log_probs"] == [-0.5] * 3
    assert len(vllm.bodies("/tokenize")) == (0 if tells else 1)


async def test_13_3_without_a_tokenizer_the_endpoint_renders_the_prompt(vllm, serve):
    model = await serve(use_completions_api=True, render_chat_template=True, chat_template_kwargs={"a": 1})
    await model.responses(*HISTORY, tools=[TOOL])
    asked = sent(vllm, "/tokenize")
    assert asked["chat_template_kwargs"] == {"a": 1} and len(asked["tools"]) == 1
    assert bytes(t for t in sent(vllm, "/v1/completions")["prompt"] if t < 256).endswith(b"<assistant>")


async def test_13_3_a_tokenizer_folder_renders_the_prompt(vllm, serve, tmp_path):
    template = (
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<bot{{ a }}>{% endif %}"
    )
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "bos_token": {"content": "<s>"}})
    )
    block = {"use_completions_api": True, "render_chat_template": True, "chat_template_kwargs": {"a": 7}}
    model = await serve(**block, tokenizer=str(tmp_path), continue_final_assistant_message=True)
    await model.responses(USER)
    assert sent(vllm, "/v1/completions")["prompt"] == "<s><user>hi<bot7>"
    assert sent(vllm, "/v1/completions")["add_special_tokens"] is False
    await model.responses(USER, HISTORY[2])
    assert sent(vllm, "/v1/completions")["prompt"] == "<s><user>hi<assistant>Hi."
    with pytest.raises(ServerError, match="names no folder"):
        await serve(**block, tokenizer="org/model")


CLIP = base64.b64encode(b"RIFF").decode()


@pytest.mark.parametrize(
    ("metadata", "clips"),
    [
        ({"audio_data": "data:audio/wav;base64,AA"}, ["data:audio/wav;base64,AA"]),
        ({"audio_path": "a.wav"}, [f"data:audio/wav;base64,{CLIP}"]),
        ({"audio_paths": '["a.wav", "b.MP3"]'}, [f"data:audio/{k};base64,{CLIP}" for k in ("wav", "mpeg")]),
    ],
)
async def test_13_3_audio_stands_before_the_text_of_the_last_user_message(
    vllm, serve, tmp_path, metadata, clips
):
    for name in ("a.wav", "b.MP3"):
        (tmp_path / name).write_bytes(b"RIFF")
    model = await serve(audio_root=str(tmp_path))
    await model.responses(USER, HISTORY[2], {**USER, "content": "what?"}, HISTORY[2], metadata=metadata)
    parts = [{"type": "audio_url", "audio_url": {"url": clip}} for clip in clips]
    assert sent(vllm)["messages"][2]["content"] == [*parts, {"type": "text", "text": "what?"}]
    assert "metadata" not in sent(vllm)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"audio_data": "data:,", "audio_path": "a.wav"}, "more than once"),
        ({"audio_path": "none.wav"}, "cannot be read"),
        ({"audio_path": "a.txt"}, "ending"),
        ({"audio_path": "../a.wav"}, "outside"),
        ({"audio_paths": "a.wav"}, "JSON list"),
    ],
)
async def test_13_3_audio_that_cannot_be_had_is_an_error(vllm, serve, tmp_path, metadata, words):
    status, answer = await (await serve(audio_root=str(tmp_path))).post(
        "/v1/responses", {"input": "x", "metadata": metadata}
    )
    assert status == 500 and words in answer
    assert vllm.asked == []
