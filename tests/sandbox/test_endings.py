"""A program ends in the sandbox as it ends under the bare interpreter: the same output, the same exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentloop.sandbox.lane import Lane
from agentloop.types import Job, Limits, Test
from tests.sandbox.test_forker import lane, pytestmark, run  # noqa: F401

ENDINGS = {
    "the end of the file": "print('a', end='')",
    "exit functions": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nprint('a')",
    "an exit function that fails": "import atexit\natexit.register(print, 'b')\natexit.register(lambda: 1 / 0)",
    "an exit function that exits": "import atexit, sys\natexit.register(sys.exit, 7)\nprint('a')",
    "an exit function of a failed program": "import atexit\natexit.register(print, 'b')\n1 / 0",
    "a file that is not closed": "out = open(1, 'w', closefd=False)\nout.write('a')",
    "a wrapper that is not flushed": "import io, sys\nout = io.TextIOWrapper(sys.stdout.buffer)\nout.write('a')",
    "a replaced stdout": "import sys\nprint('a')\nsys.stdout = open(1, 'w', closefd=False)\nprint('b')",
    "a stdout for a while": "import io, sys\nsys.stdout = io.StringIO()\nprint(1)\nsys.stdout = sys.__stdout__",
    "a stdout for ever": "import io, sys\nprint('a')\nsys.stdout = io.StringIO()\nprint('b')",
    "no stdout": "import sys\nprint('a')\nsys.stdout = None\nprint('b')",
    "a closed stdout": "import sys\nprint('a')\nsys.stdout.close()",
    "a closed descriptor": "import os\nprint('a')\nos.close(1)",
    "a closed descriptor, flushed": "import os\nprint('a', flush=True)\nos.close(1)",
    "an object's last word": "class A:\n    def __del__(self):\n        print(name)\nname = 'a'\na = A()",
    "a last word in a ring": "class A:\n    def __del__(self):\n        print('a')\na = A()\na.a = a",
    "a generator's last word": "def g():\n    try:\n        yield\n    finally:\n        print('a')\nx = g()\nnext(x)",
    "a finalizer": "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'a')",
    "a thread that is waited for": "from threading import Timer\nTimer(0.05, print, ['a']).start()",
    "a thread that is not": "from threading import Timer\nt = Timer(60, print)\nt.daemon = True\nt.start()\nprint('a')",
    "a pool that is left": "from concurrent import futures\nfutures.ThreadPoolExecutor(2).submit(print, 'a')",
    "a thread's failure": "import threading\nthreading.Thread(target=lambda: 1 / 0).start()\nprint('a')",
    "sys.exit()": "import sys\nprint('a')\nsys.exit()",
    "sys.exit(3)": "import sys\nsys.exit(3)",
    "sys.exit(256)": "import sys\nsys.exit(256)",
    "sys.exit(-1)": "import sys\nsys.exit(-1)",
    "sys.exit(True)": "import sys\nsys.exit(True)",
    "sys.exit(text)": "import sys\nsys.exit('sorry')",
    "sys.exit('')": "import sys\nsys.exit('')",
    "sys.exit(0.0)": "import sys\nsys.exit(0.0)",
    "exit()": "print('a')\nexit(4)",
    "raise SystemExit": "raise SystemExit",
    "an exit in a function, with output": "import sys\ndef f():\n    print('a', end='')\n    sys.exit(2)\nf()",
    "an error": "print('a')\nraise ValueError('b')",
    "an interrupt": "raise KeyboardInterrupt",
    "os._exit": "import os\nprint('a')\nos._exit(5)",
    "a signal": "import os, signal\nprint('a', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)",
    "an abort": "import os\nos.abort()",
    "a child that ends like it": "import os, sys\nif os.fork() == 0:\n    print(1)\n    sys.exit(3)\nos.wait()",
}  # fmt: skip


def bare(folder: Path, program: str) -> tuple[int, str]:
    """Exit status (negative: the signal) and output of the program, a text of ours, under the interpreter itself."""
    (folder / "main.py").write_text(program)
    # -I would also drop what -S does not load: exit and quit come from site, which this one needs for "exit()".
    done = subprocess.run([sys.executable, "-s", "-B", "main.py"], cwd=folder, env={}, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize("lane", [True, False], indirect=True, ids=["forked", "new"])
async def test_endings(lane: Lane, tmp_path: Path) -> None:  # noqa: F811
    test = (Test("1", "stdio", {"stdin": ""}, None, "text", ""),)
    differ = {}
    for name, program in ENDINGS.items():
        (record,) = (await run(lane, Job("python", program, test, Limits()))).tests
        status = record["exit"] if record["signal"] is None else -record["signal"]
        expected = bare(tmp_path, program)
        if expected[0] == -2:  # the interpreter ends by the signal that it was interrupted by
            expected = (1, expected[1])
        if (status, record["stdout"]) != expected:
            differ[name] = {"here": (status, record["stdout"], record["stderr"][-300:]), "bare": expected}
    assert differ == {}
