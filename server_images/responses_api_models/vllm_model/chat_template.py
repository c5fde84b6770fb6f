"""The chat template of a tokenizer folder, rendered here from its files, without the model's libraries.

A folder as model hubs lay it out: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`, which
also names the special tokens that templates use.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gymctl.contract.responses import JsonObject
from gymctl.errors import ServerError
from gymctl.servers.models.server import ConversionError

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class ChatTemplate:
    def __init__(self, folder: str) -> None:
        """Raises ServerError when the folder holds no template, or one that cannot be parsed."""
        place = Path(folder)
        if not place.is_dir():
            raise ServerError(
                f"`tokenizer` names no folder: {folder}",
                hint="download the tokenizer's files into a folder and `mount` it, or leave `tokenizer` out: "
                "the endpoint then renders with its own template",
            )
        settings = _settings(place)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        self._special = {name: _token(settings[name]) for name in _SPECIAL if settings.get(name)}
        try:
            self._templates = {
                name: environment.from_string(text) for name, text in _texts(place, settings).items()
            }
        except TemplateSyntaxError as error:
            raise ServerError(
                f"the chat template cannot be parsed: {error}, line {error.lineno}", where=folder
            ) from error
        if not self._templates:
            raise ServerError("the tokenizer has no chat template", where=folder)

    def render(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None, **more: Any) -> str:
        """The prompt. `more`: `add_generation_prompt`, `continue_final_message` and the template's own."""
        continues = more.pop("continue_final_message", False)
        names = ["tool_use", "default"] if tools else ["default"]
        template = next(
            (self._templates[name] for name in names if name in self._templates),
            next(iter(self._templates.values())),
        )
        values = {"add_generation_prompt": True, "documents": None, **self._special, **more}
        try:
            text = template.render(messages=messages, tools=tools or None, **values)
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise ConversionError(f"the chat template does not take this conversation: {error}") from error
        return _open_ended(text, messages[-1]) if continues else text


def _open_ended(text: str, last: JsonObject) -> str:
    """Without what the template puts behind the last message's text."""
    content = (last.get("content") or "").strip()
    begin = text.rfind(content)
    if not content or begin < 0:
        raise ConversionError("the chat template does not show the last message's text, so it cannot go on")
    return text[: begin + len(content)]


def _settings(folder: Path) -> JsonObject:
    try:
        value = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ServerError(f"`tokenizer_config.json` is not JSON: {error}", where=str(folder)) from error
    return value if isinstance(value, dict) else {}


def _texts(folder: Path, settings: JsonObject) -> dict[str, str]:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return {"default": file.read_text(encoding="utf-8")}
    told = settings.get("chat_template")
    if isinstance(told, str):
        return {"default": told}
    return {entry["name"]: entry["template"] for entry in told or ()}


def _token(value: str | JsonObject) -> str:
    return value if isinstance(value, str) else value["content"]


def _json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
