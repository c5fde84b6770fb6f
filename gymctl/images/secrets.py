"""How a build reaches packages: the user's CA bundle, index and proxies as BuildKit secrets, never layers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gymctl.config.model import BuildSettings
from gymctl.config.tree.masking import tokens_in_path
from gymctl.errors import ConfigError

OWN_CA_VARIABLE = "GYMCTL_CA_BUNDLE"
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")
NETWORK_VARIABLES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)
MAX_SECRET_BYTES = 500 * 1024
"""BuildKit refuses larger secrets."""
NOTHING_SAID = BuildSettings()


@dataclass(frozen=True, slots=True)
class BuildSecrets:
    """What a build may use and must not keep."""

    ca: Path | None
    network: Mapping[str, str]

    @classmethod
    def of(
        cls,
        environ: Mapping[str, str],
        settings: BuildSettings = NOTHING_SAID,
        system_ca: Path = SYSTEM_CA,
    ) -> BuildSecrets:
        """What is said for gymctl alone goes first: GYMCTL_CA_BUNDLE, then the `build` block, then variables
        that other programs read too."""
        network = {name: environ[name] for name in NETWORK_VARIABLES if environ.get(name)}
        if environ.get("PIP_INDEX_URL") and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & network.keys():
            network["UV_DEFAULT_INDEX"] = environ["PIP_INDEX_URL"]  # many companies set only pip's
        for value, names, older in (
            (settings.index_url, ("UV_DEFAULT_INDEX",), "UV_INDEX_URL"),
            (" ".join(settings.extra_index_urls), ("UV_INDEX", "PIP_EXTRA_INDEX_URL"), "UV_EXTRA_INDEX_URL"),
            (settings.http_proxy, ("HTTP_PROXY", "http_proxy"), None),
            (settings.https_proxy, ("HTTPS_PROXY", "https_proxy"), None),
            (settings.no_proxy, ("NO_PROXY", "no_proxy"), None),
        ):
            if value:
                network |= dict.fromkeys(names, value)
                network.pop(older or "", None)
        return cls(_ca(environ, settings, system_ca), network)

    @property
    def uv_environ(self) -> dict[str, str]:
        """What a uv process on this machine is told, and nothing that outlives it."""
        certificates = {} if self.ca is None else {"SSL_CERT_FILE": str(self.ca)}
        return {"NO_COLOR": "1", **self.network, **certificates}

    @property
    def values(self) -> frozenset[str]:
        """What must be cut out of build output: logins and tokens in URLs."""
        found: set[str] = set()
        for name, value in self.network.items():
            if name.lower() == "no_proxy":
                continue
            for part in value.split():
                found.update(tokens_in_path(part))
                login = urlsplit(part if "://" in part else f"//{part}").netloc.rpartition("@")[0]
                if login:
                    words = {login, login.partition(":")[2] or login}
                    found |= words | {unquote(word) for word in words}
        return frozenset(found)

    @contextmanager
    def options(self, folder: Path) -> Iterator[list[str]]:
        """`docker buildx build` options; their files are in `folder`, mode 0600, and gone afterwards."""
        contents: dict[str, bytes] = {}
        if self.ca is not None:
            contents["ca"] = self.ca.read_bytes()
        if self.network:
            lines = (f"{name}={shlex.quote(value)}\n" for name, value in sorted(self.network.items()))
            contents["network"] = "".join(lines).encode()
        files = {name: folder / f"secret-{name}" for name in contents}
        try:
            for name, file in files.items():
                file.touch(mode=0o600, exist_ok=False)
                file.write_bytes(contents[name])
            yield [part for name, file in files.items() for part in ("--secret", f"id={name},src={file}")]
        finally:
            for file in files.values():
                file.unlink(missing_ok=True)


def _ca(environ: Mapping[str, str], settings: BuildSettings, system_ca: Path) -> Path | None:
    said = {OWN_CA_VARIABLE: environ.get(OWN_CA_VARIABLE), settings.ca_bundle_place: settings.ca_bundle}
    said |= {name: environ.get(name) for name in CA_VARIABLES}
    where, named = next(((where, name) for where, name in said.items() if name), (None, None))
    if named is None:
        return system_ca if system_ca.is_file() else None
    file = Path(named).expanduser().absolute()
    if not file.is_file():
        raise ConfigError(f"no such CA bundle: {file}", where=where, hint="leave it out, or name a PEM file")
    if file.stat().st_size > MAX_SECRET_BYTES:
        raise ConfigError(
            f"the CA bundle {file} is larger than the {MAX_SECRET_BYTES // 1024} KB that a build accepts",
            where=where,
            hint="GYMCTL_CA_BUNDLE=<a smaller PEM file> for builds only",
        )
    return file
