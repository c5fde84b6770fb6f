"""The `build` block: how images and environments get their packages behind a company's walls."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from gymctl.config.checks.rules import Text, rule
from gymctl.config.model import BuildSettings
from gymctl.config.tree.origins import Origins

CA_BUNDLE = ("build", "ca_bundle")


def _is_url(value: Any) -> bool:
    if not isinstance(value, str) or any(letter.isspace() for letter in value):
        return False
    try:
        found = urlsplit(value)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:  # a port that is no number
        return False


def _is_reference(value: Any) -> bool:
    """What may stand after `docker pull`, roughly: Docker itself says what is wrong with a name."""
    is_text = isinstance(value, str) and value != "" and not value.startswith("-")
    return is_text and not any(letter.isspace() for letter in value)


def _is_prefix(value: Any) -> bool:
    return _is_reference(value) and "://" not in value and "@" not in value


_URL = "must be a URL of http or https"
Url = Annotated[str | None, rule(_URL, _is_url)]
UrlList = Annotated[
    list[str] | None,
    rule(f"{_URL}, or several in a list", lambda value: isinstance(value, list) and all(map(_is_url, value))),
]
Reference = Annotated[str | None, rule("must be the name of an image", _is_reference)]
Prefix = Annotated[str | None, rule("must be HOST or HOST/PATH, without https://", _is_prefix)]
NoProxy = Annotated[
    str | list[str] | None,
    rule(
        "must be text, or a list of texts",
        lambda value: (
            isinstance(value, str)
            or (isinstance(value, list) and all(isinstance(item, str) and item for item in value))
        ),
    ),
]


class ProxyKeys(BaseModel):
    """`build.proxy`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    http: Url = Field(None, description="For http; in the place of HTTP_PROXY.")
    https: Url = Field(None, description="For https; in the place of HTTPS_PROXY.")
    no_proxy: NoProxy = Field(None, description="Hosts that are dialled directly; in the place of NO_PROXY.")


class BuildKeys(BaseModel):
    """The `build` block; a key that it does not know is an error. Nothing of it gets into an image."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    ca_bundle: Text = Field(None, description="A PEM file of certificates that builds trust.")
    index_url: Url = Field(None, description="Where packages come from, in the place of PyPI.")
    extra_index_urls: UrlList = Field(None, description="More indexes, asked before it.")
    proxy: ProxyKeys | None = Field(None, description="Proxies of builds.")
    base_image: Reference = Field(None, description="The Python image that everything stands on.")
    registry_mirror: Prefix = Field(
        None, description="HOST/PATH under which public images are pulled: HOST/PATH/library/python:…"
    )
    platform: Text = Field(None, description="Of images, such as linux/amd64; default: the engine's own.")


def settings(block: BuildKeys | None, origins: Origins) -> BuildSettings:
    """What the block says, checked before, as the builds want it."""
    block = BuildKeys.model_validate({}) if block is None else block
    proxy = ProxyKeys.model_validate({}) if block.proxy is None else block.proxy
    without = proxy.no_proxy
    return BuildSettings(
        ca_bundle=block.ca_bundle,
        ca_bundle_place=(origins.where(*CA_BUNDLE) if block.ca_bundle else None) or ".".join(CA_BUNDLE),
        index_url=block.index_url,
        extra_index_urls=tuple(block.extra_index_urls or ()),
        http_proxy=proxy.http,
        https_proxy=proxy.https,
        no_proxy=",".join(without) if isinstance(without, list) else without,
        base_image=block.base_image,
        registry_mirror=block.registry_mirror.rstrip("/") if block.registry_mirror else None,
        platform=block.platform,
    )


def allowed(path: tuple[Any, ...]) -> list[str]:
    """The keys of the block, or of the one in it that a wrong key stands in."""
    return list((ProxyKeys if path[1:2] == ("proxy",) else BuildKeys).model_fields)
