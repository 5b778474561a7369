"""OpenMP for local models where the system has none: xllamacpp needs libgomp.so.1 and does not bring it.

A minimal Debian or Ubuntu lacks it. LLVM's runtime answers to the same name and calls; it is taken out of a pinned
wheel as data (`agentloop.fetch`; an MIT licensed package of the Apache-2.0 library), nothing is installed.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import TYPE_CHECKING

from agentloop.errors import UserError
from agentloop.fetch import cache_dir, pip_download, read_member, silent, write_atomic

if TYPE_CHECKING:
    from agentloop.fetch import Progress

PACKAGE, VERSION = "cmeel-libomp", "21.1.8"
LIBRARY = "libgomp.so.1"
SHA256 = {
    "x86_64": "f5435a0a027ab60d956584904586edf44dedcad926664a2495a76ce00c10f2f2",
    "aarch64": "6b57b9c07826eb2bf4ca02c306574ecc0190169c80ccfbe040fc6962eea7bc72",
}
INSTALL = "apt-get install libgomp1"


def library_path(progress: Progress = silent) -> str:
    """The folder to search for libgomp.so.1, or '' where the system has its own. Fetches 2 MB at first need.

    Raises `UserError` with the command that installs the system's where it cannot be fetched.
    """
    if sys.platform != "linux" or platform.machine() not in SHA256:
        return ""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return _fetched(SHA256[platform.machine()], progress)
    return ""


def _fetched(sha256: str, progress: Progress) -> str:
    folder = cache_dir() / f"openmp-{VERSION}-{platform.machine()}"
    if not (folder / LIBRARY).is_file():
        try:
            wheel = pip_download(PACKAGE, VERSION, folder, progress)
            write_atomic(folder / LIBRARY, read_member(wheel, f"cmeel.prefix/lib/{LIBRARY}", sha256))
        except UserError as error:
            raise UserError(f"local models need the system library libgomp1 ({INSTALL}): {error}") from error
    return str(folder)
