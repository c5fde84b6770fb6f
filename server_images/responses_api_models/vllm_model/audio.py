"""Audio of a row: named in the request's metadata, sent in front of the last user message's text."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from gymctl.contract.responses import JsonObject
from gymctl.servers.models.server import ConversionError

KEYS = ("audio_data", "audio_path", "audio_paths")
_SUBTYPES = {
    ".wav": "wav",
    ".flac": "flac",
    ".mp3": "mpeg",
    ".m4a": "mp4",
    ".ogg": "ogg",
    ".opus": "opus",
}


def keys_in(metadata: JsonObject) -> list[str]:
    return [key for key in KEYS if metadata.get(key)]


def urls(metadata: JsonObject, root: str | None) -> list[str]:
    """The clips as data URLs, in order. Reads files: call it in a thread."""
    named = keys_in(metadata)
    if len(named) > 1:
        raise ConversionError(f"`metadata` names audio more than once: {', '.join(named)}; give one of them")
    if not named:
        return []
    (key,) = named
    if key == "audio_data":
        return [metadata[key]]
    paths = [metadata[key]] if key == "audio_path" else _paths(metadata[key])
    return [_data_url(path, root) for path in paths]


def _paths(value: str) -> list[str]:
    """Metadata values are text: a list comes as JSON."""
    try:
        paths = json.loads(value)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConversionError(f"`metadata.audio_paths` must be a JSON list of paths, got {value!r:.200}")
    return paths


def _data_url(path: str, root: str | None) -> str:
    place = Path(path)
    if not place.is_absolute():
        if root is None:
            raise ConversionError(f"audio {path!r} is a relative path, and the config sets no `audio_root`")
        place = Path(root) / place
        if not place.resolve().is_relative_to(Path(root).resolve()):
            raise ConversionError(f"audio {path!r} is outside of `audio_root`")
    subtype = _SUBTYPES.get(place.suffix.lower())
    if subtype is None:
        raise ConversionError(f"audio {path!r}: the ending is none of {', '.join(_SUBTYPES)}")
    try:
        content = place.read_bytes()
    except OSError as error:
        raise ConversionError(
            f"audio {str(place)!r} cannot be read ({error.strerror}); is it mounted into this server?"
        ) from error
    return f"data:audio/{subtype};base64,{base64.b64encode(content).decode()}"


def inserted(messages: list[JsonObject], clips: list[str]) -> list[JsonObject]:
    """The messages with the clips before the text of the last user message, or in one of their own."""
    parts: list[JsonObject] = [{"type": "audio_url", "audio_url": {"url": clip}} for clip in clips]
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message["role"] == "user":
            content = message.get("content") or []
            rest = [{"type": "text", "text": content}] if isinstance(content, str) else content
            changed = {**message, "content": [*parts, *rest]}
            return [*messages[:place], changed, *messages[place + 1 :]]
    return [*messages, {"role": "user", "content": parts}]
