"""CA bundle, index and proxies: found as documented, in private files, gone afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gymctl.config.model import BuildSettings
from gymctl.errors import ConfigError
from gymctl.images.secrets import MAX_SECRET_BYTES, BuildSecrets


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    file = tmp_path / "ca.pem"
    file.write_text("CERTIFICATE")
    return file


def test_the_ca_bundle_is_taken_in_the_documented_order(tmp_path: Path, pem: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("OTHER")
    assert BuildSecrets.of({"GYMCTL_CA_BUNDLE": str(pem), "SSL_CERT_FILE": str(other)}).ca == pem
    assert BuildSecrets.of({"REQUESTS_CA_BUNDLE": str(other), "PIP_CERT": str(pem)}).ca == other
    assert BuildSecrets.of({}, system_ca=pem).ca == pem
    assert BuildSecrets.of({}, system_ca=tmp_path / "none").ca is None


def test_a_missing_or_too_large_bundle_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as missing:
        BuildSecrets.of({"GYMCTL_CA_BUNDLE": str(tmp_path / "none.pem")})
    assert missing.value.where == "GYMCTL_CA_BUNDLE"
    large = tmp_path / "large.pem"
    large.write_bytes(b"x" * (MAX_SECRET_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than the 500 KB"):
        BuildSecrets.of({"SSL_CERT_FILE": str(large)})


def test_files_are_private_and_gone_afterwards_also_when_the_build_fails(tmp_path: Path, pem: Path) -> None:
    secrets = BuildSecrets.of({"HTTP_PROXY": "http://proxy:1", "SSL_CERT_FILE": str(pem)})
    folder = tmp_path / "private"
    folder.mkdir()
    with pytest.raises(RuntimeError), secrets.options(folder) as options:
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
        assert options == [
            *("--secret", f"id=ca,src={folder / 'secret-ca'}"),
            *("--secret", f"id=network,src={folder / 'secret-network'}"),
        ]
        raise RuntimeError
    assert list(folder.iterdir()) == []


def test_the_network_file_survives_the_shell_whatever_a_password_holds(tmp_path: Path, pem: Path) -> None:
    index = "https://us'er:p$a`s\"s w\\rd&;@index.invalid/simple"
    with BuildSecrets.of({"UV_DEFAULT_INDEX": index, "SSL_CERT_FILE": str(pem)}).options(tmp_path):
        script = f'. {tmp_path}/secret-network; printf %s "$UV_DEFAULT_INDEX"'
        answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == index


def test_the_index_of_pip_is_used_when_uv_has_none() -> None:
    assert BuildSecrets.of({"PIP_INDEX_URL": "https://a/simple"}).network == {
        "UV_DEFAULT_INDEX": "https://a/simple"
    }
    both = {"PIP_INDEX_URL": "https://a/simple", "UV_INDEX_URL": "https://b/simple"}
    assert BuildSecrets.of(both).network == {"UV_INDEX_URL": "https://b/simple"}


def test_logins_of_urls_are_what_output_must_not_show() -> None:
    environ = {
        "HTTPS_PROXY": "http://me:hunter2@proxy:3128",
        "NO_PROXY": "localhost",
        "HTTP_PROXY": "proxy:3128",
    }
    assert BuildSecrets.of(environ).values == {"me:hunter2", "hunter2"}


def test_a_token_in_the_path_of_an_index_is_no_more_shown_than_a_login() -> None:
    environ = {
        "UV_DEFAULT_INDEX": "https://dl.example.com/0f9e8d7c6b5a4d3c/team/python/simple/",
        "UV_INDEX": "https://example.com/x/ab12cd34ef56gh78?y=1 https://example.com/pypi-remote-2024/simple",
    }
    assert BuildSecrets.of(environ).values == {"0f9e8d7c6b5a4d3c", "ab12cd34ef56gh78"}


def test_the_build_block_goes_before_what_every_program_reads_and_after_our_own_variable(
    pem: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_text("other")
    block = BuildSettings(
        ca_bundle=str(other),
        index_url="https://t0ken-abc@index.example.com/simple",
        extra_index_urls=("https://a.example.com/simple", "https://b.example.com/simple"),
        https_proxy="http://me:p%40ss-word@proxy.example.com:3128",
        no_proxy="localhost,.example.com",
    )
    environ = {
        "SSL_CERT_FILE": str(pem),
        "UV_INDEX_URL": "https://old.example.com",
        "UV_EXTRA_INDEX_URL": "https://older.example.com",
        "HTTP_PROXY": "http://kept.example.com:1",
        "https_proxy": "http://lost.example.com:1",
    }
    found = BuildSecrets.of(environ, block)
    assert found.ca == other
    assert BuildSecrets.of({**environ, "GYMCTL_CA_BUNDLE": str(pem)}, block).ca == pem
    assert found.network == {
        "UV_DEFAULT_INDEX": "https://t0ken-abc@index.example.com/simple",
        "UV_INDEX": "https://a.example.com/simple https://b.example.com/simple",
        "PIP_EXTRA_INDEX_URL": "https://a.example.com/simple https://b.example.com/simple",
        "HTTP_PROXY": "http://kept.example.com:1",
        "HTTPS_PROXY": "http://me:p%40ss-word@proxy.example.com:3128",
        "https_proxy": "http://me:p%40ss-word@proxy.example.com:3128",
        "NO_PROXY": "localhost,.example.com",
        "no_proxy": "localhost,.example.com",
    }
    assert {"t0ken-abc", "me:p%40ss-word", "p%40ss-word", "p@ss-word"} <= found.values
    assert found.uv_environ["SSL_CERT_FILE"] == str(other)


def test_a_missing_bundle_of_the_block_is_told_with_its_place(tmp_path: Path) -> None:
    block = BuildSettings(ca_bundle=str(tmp_path / "none.pem"), ca_bundle_place="env.yaml:2:3")
    with pytest.raises(ConfigError) as caught:
        BuildSecrets.of({}, block)
    assert caught.value.where == "env.yaml:2:3"
