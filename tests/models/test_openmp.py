"""The OpenMP library for systems without one."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import sys
import zipfile
from pathlib import Path

import pytest

from agentloop.errors import UserError
from agentloop.models import openmp

CONTENT = b"\x7fELF, as far as this test goes"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that has been downloaded already."""
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path))
    folder = tmp_path / f"openmp-{openmp.VERSION}-{platform.machine()}"
    folder.mkdir()
    path = folder / f"cmeel_libomp-{openmp.VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cmeel.prefix/lib/libgomp.so.1", CONTENT)
    return path


def test_the_library_is_taken_out_of_the_wheel(wheel: Path) -> None:
    folder = Path(openmp._fetched(hashlib.sha256(CONTENT).hexdigest(), lambda *_: None))
    assert (folder / "libgomp.so.1").read_bytes() == CONTENT
    wheel.unlink()
    assert openmp._fetched("not looked at again", lambda *_: None) == str(folder)


def test_another_library_is_refused_with_the_command_that_mends_it(wheel: Path) -> None:
    with pytest.raises(UserError, match=r"apt-get install libgomp1.*not the pinned file"):
        openmp._fetched(openmp.SHA256["x86_64"], lambda *_: None)
    assert not (wheel.parent / "libgomp.so.1").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the library is Linux's")
def test_the_systems_own_library_comes_first() -> None:
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("this system has no libgomp.so.1")
    assert openmp.library_path() == ""
