"""What every sandbox backend must do, as cases: (name, job, check). `agentloop.testing.sandbox_cases` gives them all.

A check gets the job's `Execution` and raises `AssertionError`. The first of them are a preflight: known programs whose
outcome must be told apart. The others are traps in which other tools gave wrong verdicts. No case needs a network, a
file of the host or more than a few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentloop.types import Job, Limits, Test

if TYPE_CHECKING:
    from agentloop.types import Execution, Json

SHARED_MEMORY = "multiprocessing"
"""The one case that `local-reduced` cannot meet: it has no /dev/shm of its own to give."""
Check = Callable[["Execution"], None]
Case = tuple[str, Job, Check]
MIB = 2**20
LIMITS = Limits(cpu=4.0, wall=40.0, memory=160 * MIB, output=256 * 2**10, processes=32, file_size=8 * MIB)
# Only for programs that use up CPU time or sleep: on a slow machine one that is to meet another limit meets this first.
SHORT = Limits(cpu=0.4, wall=20.0, memory=160 * MIB, output=64 * 2**10, processes=32, file_size=8 * MIB)
ASLEEP = replace(SHORT, wall=1.0)
STREAMS = """
import sys
three = (sys.stdin, sys.stdout, sys.stderr)
print(repr(sys.stdin.read()), sys.stdin.seekable(), sys.stdin.name, sys.stdout.mode, sys.stdout.buffer.raw.closefd)
print([each.errors for each in three], [each.line_buffering for each in three], [each.encoding for each in three])
print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.argv, __name__)
"""
STREAMS_ARE = """\
'a\\r\\nb\\n' True <stdin> w False
['surrogateescape', 'surrogateescape', 'backslashreplace'] [False, False, True] ['utf-8', 'utf-8', 'utf-8']
True True ['main.py'] __main__
"""


def call(function: str, *args: Json) -> Test:
    return Test("call", "call", {"function": function, "args": list(args), "kwargs": {}}, None, "equal", "")


def stdio(text: str = "") -> Test:
    return Test("stdio", "stdio", {"stdin": text}, None, "text", "")


def script(code: str, function: str = "f", checker: str = "script") -> Test:
    return Test("script", "script", {"code": code, "function": function}, None, checker, "")


def job(program: str, *tests: Test, limits: Limits = LIMITS) -> Job:
    return Job("python", program, tests or (call("f"),), limits)


def answer(record: dict[str, Json]) -> Any:
    """What the driver wrote to the channel, as JSON; None if nothing."""
    return json.loads(record["channel"]) if record["channel"] else None


def expect(**wanted: Json) -> Check:
    """A check that every test ended by itself and its record has these values; `value` is the call's."""

    def check(execution: Execution) -> None:
        assert execution.build is None or execution.build["exit"] == 0, execution.build
        for record in execution.tests:
            assert "skipped" not in record, record
            got = {key: record.get(key) for key in wanted if key != "value"}
            if "value" in wanted:
                got["value"] = (answer(record) or {}).get("value")
            if not {"limit", "signal"} & set(wanted):
                assert record["limit"] is None, record
            assert got == wanted, (got, wanted, record)

    return check


def limited(*limits: str) -> Check:
    """A check that the first test was stopped by one of these limits, without an exit status or a signal."""

    def check(execution: Execution) -> None:
        record = execution.tests[0]
        assert record["limit"] in limits, record
        assert record["exit"] is None, record
        assert record["signal"] is None, record

    return check


def raised(name: str, where: str = "call") -> Check:
    def check(execution: Execution) -> None:
        for record in execution.tests:
            told = answer(record)["exception"]
            assert (told["type"], told["where"]) == (name, where), told
            assert name in told["traceback"], told
            assert "source/python.py" not in told["traceback"], told

    return check


def unplain(execution: Execution) -> None:
    for record in execution.tests:
        assert set(answer(record)) == {"unplain"}, record


def does_not_compile(execution: Execution) -> None:
    assert execution.build is not None
    assert execution.build["exit"] == 1, execution.build
    assert "SyntaxError" in execution.build["stderr"], execution.build
    assert execution.tests == ()


def times_out_and_skips(execution: Execution) -> None:
    first, second, third = execution.tests
    assert first["limit"] == second["limit"] == "cpu", execution.tests
    assert SHORT.cpu < first["cpu"] < SHORT.cpu + 1, first
    assert third["skipped"], third


def checked(**wanted: Json) -> Check:
    """A check of what the test script's own process said."""

    def check(execution: Execution) -> None:
        said = answer(execution.tests[0]["checker"])
        got = {key: said.get(key) for key in wanted}
        assert got == wanted, (said, execution.tests[0])

    return check


def preflight() -> list[Case]:
    """The known programs: right, wrong, no program, raising, too slow, too big, too loud, reaching out."""
    reach = """
import socket
def f():
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=0.5)
    except TimeoutError:
        return "a network is there"
    except OSError:
        return "refused"
    return "connected"
"""
    return [
        ("hello", job("print('hello, ' + input())", stdio("world\n")), expect(stdout="hello, world\n", exit=0)),
        ("right answer", job("def f(x): return x + 1", call("f", 1)), expect(value=2, exit=0, stdout="")),
        ("wrong answer", job("def f(x): return x - 1", call("f", 1)), expect(value=0, exit=0)),
        ("compile error", job("def f(:\n    pass"), does_not_compile),
        ("compile error under a script", job("def f(:", script("pass"), script("pass")), does_not_compile),
        ("runtime error", job("def f(): return [][1]"), raised("IndexError")),
        ("runtime error at load", job("import no_such_module"), raised("ModuleNotFoundError", "load")),
        ("timeout", job("def f():\n    while True: pass", *[call("f")] * 3, limits=SHORT), times_out_and_skips),
        ("memory at once", job("def f(): return len(b'x' * 10**9)"), limited("memory")),
        ("output flood", job("def f():\n    while True: print('x' * 999)"), limited("output")),
        ("no network", job(reach), expect(value="refused")),
    ]


def traps() -> list[Case]:
    """Correct programs that other tools fail, and values that other tools misread."""
    readers = """
import sys, os
assert sys.stdin.fileno() == 0 and not sys.stdin.isatty()
first = sys.stdin.buffer.readline()
second = input()
rest = [line for line in sys.stdin]
print(first, second, rest, sys.stdin.read() == "")
"""
    who = "import getpass, pathlib\ndef f(): return [getpass.getuser(), pathlib.Path.home() == pathlib.Path.cwd()]"
    deep = (
        "import sys\nsys.setrecursionlimit(10**6)\ndef g(n): return 1 + g(n - 1) if n else 0\ndef f(): return g(9000)"
    )
    streams = "import sys\nsys.stdout.write('o' * 200_000)\nsys.stderr.write('e' * 200_000)"
    workers = """
import subprocess, sys, threading
def f():
    got = []
    thread = threading.Thread(target=got.append, args=(7,)); thread.start(); thread.join()
    return [*got, subprocess.run([sys.executable, "-S", "-c", "print(6)"], capture_output=True, text=True).stdout]
"""
    shared = """
import multiprocessing
def f():
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=queue.put, args=(7,)); child.start()
    got = queue.get(); child.join()
    return got
"""
    writers = "import os\nout = os.fdopen(1, 'w')\nprint('a')\nout.write('b')"
    sharing = """
import os, time
def f():
    memory = b"x" * 100_000_000
    for number in range(100):
        if number >= 12:
            os.wait()
        if os.fork() == 0:
            time.sleep(0.02 + number % 12 / 400)
            os._exit(0)
    return len(memory)
"""
    zeros = "import sys\nfor file in (sys.stdout, sys.stderr): file.write(chr(0) * (6 << 20))"
    inherited = """
import os, subprocess, sys
def f():
    names = "import os; print(*sorted(os.environ))"
    child = subprocess.run([sys.executable, "-S", "-c", names], capture_output=True, text=True)
    return child.stdout.split() == sorted(os.environ)
"""
    files = """
import os, shutil, tempfile
def f():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a")
        open(path, "w").write("abc")
        shutil.copy2(path, path + "2")
        os.chmod(path, 0o600); os.utime(path, (1, 1)); os.truncate(path, 1)
        return open(path).read() + open(path + "2").read()
"""
    loop = "import asyncio\nasync def g(): await asyncio.sleep(0.01); return 5\ndef f(): return asyncio.run(g())"
    always = "class A:\n    __eq__ = lambda a, b: True\n    __hash__ = lambda a: 1\ndef f(): return A()"
    sly = (
        "class L(list):\n    __iter__ = lambda self: iter([1])\n    __eq__ = lambda a, b: True\ndef f(): return L([9])"
    )
    cycle = "a = []\na.append(a)\ndef f(): return a"
    nested = "def f():\n    a = []\n    for _ in range(100_000): a = [a]\n    return a"
    wide = "def f():\n    a = [1]\n    for _ in range(60): a = [a, a]\n    return a"
    marks = "import os\ndef f():\n    old = os.listdir('.')\n    open('mark', 'w').close()\n    return old"
    seeds = "def f(): return [hash('a'), list({'x', 'yy', 'zzz'})]"
    named = "import collections, enum\nP = collections.namedtuple('P', 'x y')\nE = enum.IntEnum('E', 'A B')\n"
    named += "def f(): return [P(1, 2), E.B, collections.Counter('aab'), collections.OrderedDict(a=1), True]"

    def same(execution: Execution) -> None:
        first, second = (answer(record)["value"] for record in execution.tests)
        assert first == second, (first, second)

    return [
        ("real stdin", job(readers, stdio("1\n2\n3\n4")), expect(stdout="b'1\\n' 2 ['3\\n', '4'] True\n", exit=0)),
        ("stdin as a file", job("print(sum(map(int, open(0))))", stdio("1\n2\n")), expect(stdout="3\n")),
        ("exit() ends early", job("print(1)\nexit()\nprint(2)", stdio()), expect(stdout="1\n", exit=0)),
        ("exit status", job("import sys\nsys.exit(3)", stdio()), expect(exit=3, signal=None)),
        ("main guard", job("if __name__ == '__main__': print(1)", stdio()), expect(stdout="1\n")),
        ("no main guard in a call", job("if __name__ == '__main__': 1/0\ndef f(): return 1"), expect(value=1)),
        ("200 KB on both streams", job(streams, stdio()), expect(bytes={"stdout": 200_000, "stderr": 200_000})),
        ("streams as an interpreter has them", job(STREAMS, stdio("a\r\nb\n")), expect(stdout=STREAMS_ARE, exit=0)),
        ("two writers on one stream", job(writers, stdio()), expect(stdout="a\nb", exit=0)),
        ("what C functions write", job("import ctypes\nctypes.CDLL(None).puts(b'c')", stdio()), expect(stdout="c\n")),
        ("bad bytes", job("import os\nos.write(1, b'a\\xff')", stdio()), expect(stdout="a\ufffd", encoding="replaced")),
        ("deep recursion", job(deep), expect(value=9000)),
        ("threads and children", job(workers), expect(value=[7, "6\n"])),
        (SHARED_MEMORY, job(shared), expect(value=7)),
        ("asyncio", job(loop), expect(value=5)),
        ("same hashes every time", job(seeds, call("f"), call("f")), same),
        ("fresh directory for each test", job(marks, call("f"), call("f")), expect(value=[])),
        ("an empty environment", job("import os\ndef f(): return 'PATH' in os.environ and len(os.environ) < 20"),
         expect(value=True)),
        ("the same environment for children", job(inherited), expect(value=True)),
        ("huge integer", job("def f(): return 2 ** 20_000"), expect(value={"int": hex(2**20_000)})),
        ("NaN and infinity", job("def f(): return [float('nan'), -float('inf'), 1e300]"),
         expect(value=[{"float": "nan"}, {"float": "-inf"}, 1e300])),
        ("lone surrogate", job("def f(): return '\\ud800'"), expect(value={"str": "7aCA"})),
        ("tuple, set, dict, bytes", job("def f(): return (1,), {2}, {3: 4}, b'5', 1j"),
         expect(value={"tuple": [{"tuple": [1]}, {"set": [2]}, {"dict": [[3, 4]]}, {"bytes": "NQ=="},
                                 {"complex": [0.0, 1.0]}]})),
        ("subclasses are their base", job(named),
         expect(value=[{"tuple": [1, 2]}, 2, {"dict": [["a", 2], ["b", 1]]}, {"dict": [["a", 1]]}, True])),
        ("generator", job("def f():\n    yield 1\n    yield 2"), expect(value={"iterator": [1, 2]})),
        ("endless generator", job("import itertools\ndef f(): return itertools.count()"),
         expect(value={"iterator": list(range(10_000))})),
        ("arguments are plain data", job("def f(*a): return a == ((1,), {2}, {3: 4}, 10**20, b'x', '\\ud800')",
                                         call("f", {"tuple": [1]}, {"set": [2]}, {"dict": [[3, 4]]},
                                              {"int": hex(10**20)}, {"bytes": "eA=="}, {"str": "7aCA"})),
         expect(value=True)),
        ("equal to everything", job(always), unplain),
        ("a list that lies", job(sly), expect(value=[9])),
        ("a list in itself", job(cycle), unplain),
        ("nested too deep", job(nested), unplain),
        ("more than the cap", job(wide), unplain),
        ("asks who and where it is", job(who), expect(value=["program", True])),
        ("missing function", job("def g(): pass"), raised("NameError", "load")),
        ("exit in a call", job("import sys\ndef f(): sys.exit(0)"), raised("SystemExit")),
        ("recursion without end", job("def f(): return f()"), raised("RecursionError")),
        ("script passes", job("def f(x): return x * 2", script("assert f(2) == 4\nassert f('a') == 'aa'")),
         checked(ok=True)),
        ("script fails", job("def f(x): return x", script("assert f(2) == 4, 'no'")),
         checked(assertion="assert f(2) == 4, 'no'\nno")),
        ("children that share memory and end", job(sharing, call("f"), call("f")), expect(value=100_000_000)),
        ("output that takes six times its bytes", job(zeros, stdio(), limits=replace(LIMITS, output=6 * MIB)),
         expect(stdout="\0" * (6 * MIB), stderr="\0" * (6 * MIB))),
        ("temporary files", job(files), expect(value="aabc")),
        ("memory beside large inputs", job("input()\nprint(len(b'x' * 135_000_000))", *[stdio("i" * 15_000_000)] * 2),
         expect(stdout="135000000\n")),
        ("memory that is shared", job("import mmap\ndef f():\n    m = mmap.mmap(-1, 100 << 20)\n"
                                      "    m.write(bytes(100 << 20))\n    return len(m)"), expect(value=100 << 20)),
        ("script expects an exception", job("def f(): raise KeyError('k')",
                                            script("try:\n    f()\n    assert False\nexcept KeyError: pass")),
         checked(ok=True)),
        ("script meets an exception", job("def f(): return 1 / 0", script("f()")), checked(**{"from": "program"})),
        ("script meets a broken program", job("1 / 0", script("try:\n    f()\nexcept Exception: pass")),
         checked(**{"from": "program"})),
        ("script is broken", job("def f(): return 1", script("f().x")), checked(**{"from": "script"})),
        ("script sees changes in place", job("def f(x): x.append(3)", script("a = [1]\nf(a)\nassert a == [1, 3]")),
         checked(ok=True)),
        ("script in the program's process", job("class C: x = 1", script("assert C().x == 1", "C", "in_process")),
         lambda execution: _same(answer(execution.tests[0]), {"ok": True})),
    ]  # fmt: skip


def _same(got: Json, wanted: Json) -> None:
    assert got == wanted, got
