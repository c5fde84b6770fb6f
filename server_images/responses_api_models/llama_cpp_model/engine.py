"""The llama.cpp process seen from the model server: start it, ask it, notice its death, end it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import llama_process

from gymctl.contract.responses import JsonObject
from gymctl.errors import ServerError
from gymctl.servers import InnerServerError
from gymctl.servers.models.server import ConversionError
from gymctl.servers.stack.wire import dumps
from gymctl.transport import Transport

logger = logging.getLogger("gymctl.server")

_REMEMBERED_PROMPTS = 512
_CANDIDATES = (1000, 10_000_000)
"""A sampled token is nearly always among the first thousand; the whole vocabulary is megabytes of answer."""
_TEMPLATE_FIELDS = ("messages", "tools", "tool_choice", "response_format", "chat_template_kwargs")


class Engine:
    """Use `start` once, `ask` from any number of tasks, `stop` at the end."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._key = secrets.token_hex(16)
        self._url = ""
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._prompts: OrderedDict[bytes, list[int]] = OrderedDict()
        self._letter: int | None = None

    async def start(self, *, model_path: str, threads: int, context: int, parallel: int) -> None:
        """Returns when the model is loaded. Raises ServerError when it cannot be."""
        settings = llama_process.Settings(model_path, threads, context, parallel, self._key)
        with tempfile.TemporaryDirectory(prefix="gymctl-openmp-") as scratch:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                llama_process.__file__,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=llama_process.environment(threads, Path(scratch)),
            )
            self._process = process
            try:
                line = await _loaded(process, settings)
            except asyncio.CancelledError:
                await self.stop()
                raise
        if not line:
            code = await process.wait()
            raise ServerError(
                f"llama.cpp could not load the model (exit {code})",
                where=model_path,
                hint="its own messages are above; the file may be damaged, or larger than the memory limit",
            )
        self._url = json.loads(line)["url"]
        self._watch = asyncio.create_task(self._end_with(process))

    async def _end_with(self, process: asyncio.subprocess.Process) -> None:
        """Without llama.cpp this server is of no use: end it, so that the run learns of it at once."""
        code = await process.wait()
        logger.critical("llama.cpp ended by itself (exit %s); this server ends with it", code)
        os._exit(1)

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def ask(self, path: str, body: JsonObject) -> Any:
        """POST to llama.cpp. Raises InnerServerError for an error status."""
        answer = await self._transport.call(
            "POST",
            self._url + path,
            dumps(body),
            headers={"authorization": f"Bearer {self._key}"},
            retry_seconds=0,
        )
        if answer.is_error:
            raise InnerServerError(answer)
        return answer.json()

    async def prompt_ids(self, body: JsonObject) -> list[int]:
        """The token ids that llama.cpp makes of a chat request; repeats of a task are looked up."""
        request = {field: body[field] for field in _TEMPLATE_FIELDS if field in body}
        key = dumps(request)
        known = self._prompts.pop(key, None)
        if known is None:
            prompt = (await self.ask("/apply-template", request))["prompt"]
            tokens = {"content": prompt, "add_special": True, "parse_special": True}
            known = (await self.ask("/tokenize", tokens))["tokens"]
        self._prompts[key] = known
        if len(self._prompts) > _REMEMBERED_PROMPTS:
            self._prompts.popitem(last=False)
        return known

    async def log_probability(self, before: list[int], token: int) -> float:
        """How probable `token` was after these tokens.

        One more token is generated, which must be a letter: of half a character llama.cpp reports nothing.
        Forcing it does not change what is reported of the others.
        """
        if self._letter is None:
            self._letter = (await self.ask("/tokenize", {"content": "a"}))["tokens"][-1]
        body = {"prompt": before, "n_predict": 1, "temperature": 0, "logit_bias": [[self._letter, 1000]]}
        for candidates in _CANDIDATES:
            answer = await self.ask("/completion", {**body, "n_probs": candidates})
            for entry in answer["completion_probabilities"][0]["top_logprobs"]:
                if entry["id"] == token:
                    return entry["logprob"]
        raise ConversionError(f"llama.cpp does not know token {token}")


async def _loaded(process: asyncio.subprocess.Process, settings: llama_process.Settings) -> bytes:
    """The line that says where llama.cpp listens; nothing when the process ended instead."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(settings.line())
        return await process.stdout.readline()
    except ConnectionError:
        return b""
