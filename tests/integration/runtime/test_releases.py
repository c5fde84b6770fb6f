"""`--search-dir PACKAGE==VERSION`, against a package index of our own on loopback."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gymctl.cli.main import main
from gymctl.cli.selection import search_folders
from gymctl.errors import IntegrityError, PrerequisiteError, UsageError
from gymctl.paths import cache_dir

WHEEL = "far_gym-1.2-py3-none-any.whl"
SERVER = "resources_servers/echo"
FILES = {
    f"{SERVER}/app.py": "import far_gym\n",
    f"{SERVER}/requirements.txt": "-e nemo-gym[dev] @ ../../\n",
    f"{SERVER}/configs/echo.yaml": (
        "echo:\n  resources_servers:\n    echo: {entrypoint: app.py, domain: other}\n"
    ),
    "far_gym-1.2.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: far-gym\nVersion: 1.2\nRequires-Python: >=3.13.14\n"
        "Requires-Dist: nothing-of-this-name\n"
    ),
    "far_gym-1.2.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an index with one package, which needs a newer Python than this one."""
    folder = tmp_path / "index" / "far-gym"
    folder.mkdir(parents=True)
    make_wheel(folder, FILES)
    handler = partial(QuietHandler, directory=str(folder.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield folder
        server.shutdown()


def make_wheel(folder: Path, files: dict[str, str]) -> None:
    record = "".join(f"{name},,\n" for name in (*files, "far_gym-1.2.dist-info/RECORD"))
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, text in {**files, "far_gym-1.2.dist-info/RECORD": record}.items():
            wheel.writestr(name, text)
    list_wheel(folder, hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest())


def list_wheel(folder: Path, digest: str) -> None:
    (folder / "index.html").write_text(f'<a href="{WHEEL}#sha256={digest}">{WHEEL}</a>')


def test_a_package_for_a_newer_python_is_a_search_root(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["config", "check", "--search-dir", "far-gym==1.2", "--resources-server", "echo"])
    told = capsys.readouterr()
    assert ended.value.code in (0, None), told.err
    assert "fetching far-gym==1.2" in told.err
    assert str(cache_dir() / "releases" / "far-gym-1.2" / SERVER / "configs" / "echo.yaml") in told.out
    assert [entry.name for entry in (cache_dir() / "releases").iterdir()] == ["far-gym-1.2"]


def test_it_is_fetched_once(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = search_folders(["far_gym==1.2"])
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9")
    capsys.readouterr()
    assert search_folders(["far-gym==1.2", "here"]) == [*first, "here"]
    assert capsys.readouterr().err == ""


def test_a_file_that_is_not_the_one_of_the_index_is_refused(index: Path) -> None:
    list_wheel(index, "0" * 64)
    with pytest.raises(IntegrityError, match=r"`far-gym==1\.2`: expected sha256 0{12}, found") as caught:
        search_folders(["far-gym==1.2"])
    assert "ash mismatch" in "\n".join(caught.value.details)
    assert list((cache_dir() / "releases").iterdir()) == []


@pytest.mark.parametrize("asked", ["far-gym==9.9", "nowhere-gym==1.2"])
def test_what_the_index_does_not_have_is_a_usage_error(index: Path, asked: str) -> None:
    with pytest.raises(UsageError) as caught:
        search_folders([asked])
    assert caught.value.where == f"--search-dir {asked}"


def test_an_index_that_does_not_answer_is_a_prerequisite(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9")
    with pytest.raises(PrerequisiteError) as caught:
        search_folders(["far-gym==1.2"])
    assert any("127.0.0.1:9" in line for line in caught.value.details)


def test_a_folder_may_be_called_like_a_requirement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far-gym==1.2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert search_folders(["far-gym==1.2"]) == ["far-gym==1.2"]


def test_a_package_without_servers_is_told_in_one_line(
    index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {name: text for name, text in FILES.items() if "dist-info" in name}
    make_wheel(index, {**plain, "far_gym/app.py": ""})
    search_folders(["far-gym==1.2"])
    fetched, told = capsys.readouterr().err.splitlines()
    assert fetched == "fetching far-gym==1.2"
    assert told.startswith("warning: --search-dir far-gym==1.2: there is nothing in it that gymctl can use;")
    assert "resources_servers/" in told and "benchmarks/" in told
    search_folders(["far-gym==1.2"])
    assert capsys.readouterr().err == f"{told}\n"


def test_servers_one_folder_deeper_are_named(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_wheel(
        index, {name if "dist-info" in name else f"far_gym/{name}": text for name, text in FILES.items()}
    )
    [folder] = search_folders(["far-gym==1.2"])
    assert f"did you mean {folder}/far_gym?" in capsys.readouterr().err
    search_folders([f"{folder}/far_gym"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("file", ["benchmarks/b/README", "mine.yaml", "far/below/rows.jsonl"])
def test_a_folder_of_configs_or_rows_alone_is_a_search_root(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search_folders([str(tmp_path)])
    assert f"--search-dir {tmp_path}: there is nothing in it" in capsys.readouterr().err
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    search_folders([str(tmp_path)])
    assert capsys.readouterr().err == ""
