"""Hostile programs that every backend must contain: part of the conformance cases.

Each is a job whose record must say what stopped it, and after which the lane, or a fresh one, runs the next job well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentloop.sandbox.conformance import (
    ASLEEP,
    SHORT,
    Case,
    answer,
    call,
    checked,
    expect,
    job,
    limited,
    script,
    stdio,
)

if TYPE_CHECKING:
    from agentloop.types import Execution

FORK_BOMB = """
import os
def f():
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
DAEMON = """
import glob, os, time
def f():
    left = others()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(0.05)
        os._exit(0)
    return left
def others():
    return [name for name in glob.glob("/proc/[0-9]*") if name != f"/proc/{os.getpid()}" and daemon(name)]
def daemon(name):
    try:
        if os.stat(name).st_uid != os.getuid():  # an interpreter that stands ready is none of ours
            return False
        return open(f"{name}/cmdline").read() == open("/proc/self/cmdline").read()
    except OSError:
        return False
"""
STEPS = (
    "import time\ndef f():\n    a = []\n    while True:\n        a.append(bytearray(b'x' * 10**7)); time.sleep(0.01)"
)
CHILDREN = """
import os, time
def f():
    for _ in range(8):
        if os.fork() == 0:
            a = b"x" * 40_000_000
            time.sleep(60)
    time.sleep(60)
"""
DISK = """
import os
def f():
    full = 0
    for folder in (".", "/tmp", "/dev/shm", "/var/tmp"):
        for n in range(100):
            try:
                with open(f"{folder}/fill{n}", "wb") as file:
                    file.write(b"x" * 4_000_000)
            except OSError:
                full += 1
                break
    return full > 0
"""
TREE = """
import os
def f():
    for n in range(1100):
        try:
            os.mkdir("d"); os.chdir("d"); open("x", "w").close()
        except OSError:
            break
    os.chmod("..", 0)
    return n > 1050
"""
LOCKED = """
import os
def f():
    os.makedirs("a/b/c"); open("a/b/c/x", "w").close()
    os.chmod("a/b/c", 0); os.chmod("a/b", 0); os.chmod("a", 0); os.chmod(".", 0)
    return True
"""
EVERY_FD = """
import os
def f():
    for fd in range(256):
        try:
            os.write(fd, b'{"value": 1}\\n{"job": "job1", "end": {"clean": true, "why": ""}}\\n')
        except OSError:
            pass
    os._exit(0)
"""
PEEK = """
import os
SEEN = []
def f():
    family = {str(os.getpid()), str(os.getppid()), "self", "thread-self"}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name in family or not name.isdigit():
            continue
        for part in ("environ", "mem", "maps", "fd/0"):
            try:
                with open(f"/proc/{name}/{part}", "rb") as file:
                    SEEN.append([part, len(file.read(1))])
            except OSError:
                pass
    return SEEN
"""
PARENT = """
import os, signal
def f():
    done = []
    for pid in (os.getppid(), 1, -1):
        if pid:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
    return 1
"""
CHECKER_FILES = """
import glob, os
def f():
    found = []
    for top in {os.path.dirname(os.environ.get("HOME", "/")), "/tmp"}:
        for folder, _, names in os.walk(top):
            for name in names:
                try:
                    text = open(os.path.join(folder, name), errors="replace").read()
                except OSError:
                    continue
                if "-".join(["the", "secret"]) in text:
                    found.append(name)
    for name in glob.glob("/proc/[0-9]*"):
        try:
            if "check.py" in open(f"{name}/cmdline").read():
                open(f"{name}/mem", "rb").close()
                found.append(name)
        except OSError:
            pass
    return found
"""
DOOR = """
import glob, os, socket
def f():
    reached = []
    ways = [line.split()[7] for line in open("/proc/net/unix").readlines()[1:] if len(line.split()) > 7]
    beside = os.path.dirname(os.getcwd())
    for way in {*ways, *glob.glob(beside + "/*/*"), beside + "/fork/door"}:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
            try:
                socket.socket(socket.AF_UNIX, kind).connect(way.replace("@", chr(0), 1))
                reached.append(way)
            except OSError:
                pass
    return reached
"""
TRY = """
def tries(paths, mode):
    done = []
    for path in paths:
        try:
            open(path, mode).close()
            done.append(path)
        except OSError:
            pass
    return done
"""
QUEUE = """
import ctypes
libc = ctypes.CDLL(None)
def f():
    libc.shmget(4711, 65536, 0o1666)
    libc.semget(4711, 1, 0o1666)
    return 1
"""
DEAF = """
import signal
for number in set(range(1, 32)) - {9, 19}:
    signal.signal(number, signal.SIG_IGN)
def f():
    while True: pass
"""
HIDDEN = """
import ctypes, os, time
def f():
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    if os.fork() == 0:
        while True: time.sleep(0.01)
    return 1
"""
ZOMBIE_LEADER = """
import ctypes, os, threading
def spin():
    while True: pass
def f():
    threading.Thread(target=spin).start()
    ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""
# Ends without end, of processes that fall to the judge.
ORPHANS = """
import os, time
def f():
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        if os.fork() == 0:
            try:
                os.fork()
            finally:
                os._exit(3)
        os.wait()
    return 1
"""
STOPPED = """
import os, time
def f():
    if os.fork() == 0:
        for _ in range(100):
            os.kill(os.getppid(), 19); time.sleep(0.001); os.kill(os.getppid(), 18)
        os._exit(0)
    os.wait()
    return 1
"""
SOCKETS = """
import socket
KEPT = []
def f():
    try:
        while True:
            KEPT.append(socket.socket(socket.AF_UNIX))
            KEPT[-1].bind(chr(0) + chr(10) * 40 + str(len(KEPT)))
    except OSError:
        return len(KEPT) < 2 or len(KEPT) > 40  # a level may allow none
"""


# Memory that no process's figures tell, from one who will not be the first to go when there is no more.
NAMELESS = """
import os
def f():
    try:
        with open("/proc/self/oom_score_adj", "w") as file: file.write("0")
    except OSError:
        pass
    files = []
    try:
        while len(files) < 100:
            files.append(os.memfd_create("x"))
            os.write(files[-1], bytes(8_000_000))
    except OSError:
        return "refused"
"""
OUT_OF_HAND = """
import mmap
def f():
    memory, part = mmap.mmap(-1, 2 << 30), bytes(1 << 20)
    for number in range(1024):
        memory[number << 20 : number + 1 << 20] = part
        if number % 16 == 15: memory.madvise(mmap.MADV_DONTNEED)
"""
SYSTEM_V = """
import ctypes
def f():
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    for _ in range(64):
        number = libc.shmget(0, 16 << 20, 0o1600)
        if number < 0:
            return "refused"
        address = libc.shmat(number, None, 0)
        ctypes.memset(address, 1, 16 << 20)
        libc.shmdt(ctypes.c_void_p(address))
"""
CATCHES_ALL = """
try:
    f()
except:
    pass
else:
    assert False
"""


def refused_or_stopped(execution: Execution) -> None:
    record = execution.tests[0]
    assert record["limit"] == "memory" or answer(record) == {"value": "refused"}, record


def left_early(execution: Execution) -> None:
    record = execution.tests[0]
    assert (record["exit"], record["channel"], record["limit"]) == (0, "", None), record


def two_jobs_apart(execution: Execution) -> None:
    for record in execution.tests:
        assert answer(record) == {"value": []}, record


def full_or_stopped(execution: Execution) -> None:
    """Its directory has a size, or is watched."""
    record = execution.tests[0]
    assert record["limit"] == "output" or answer(record) == {"value": True}, record


def only_its_own(execution: Execution) -> None:
    """What it wrote went to its own streams; the record around them is the judge's."""
    record = execution.tests[0]
    assert record["exit"] == 0, record
    assert "end" in record["stdout"], record
    assert record["channel"].startswith('{"value": 1}\n{"job"'), record


def hostile() -> list[Case]:
    """The hostile cases."""
    spread = "import ctypes, os\ndef f(): return bool(ctypes.CDLL(None).unshare(0x10000000))"
    trace = "import ctypes\ndef f(): return ctypes.CDLL(None).ptrace(16, 1, 0, 0)"
    reader = f"{TRY}\ndef f(): return tries(['/etc/shadow', '/root/.bashrc', '/var/log/dpkg.log', '/dev/kmsg'], 'rb')"
    writer = f"{TRY}\ndef f(): return tries([f + '/x' for f in ('', '/usr', '/usr/bin', '/etc', '/dev', '/var')], 'wb')"
    return [
        ("fork bomb", job(FORK_BOMB, limits=SHORT), limited("cpu", "wall", "memory")),
        ("daemon that outlives", job(DAEMON, call("f"), call("f")), two_jobs_apart),
        ("daemon that hides", job(HIDDEN, call("f"), call("f")), expect(value=1)),
        ("threads after the main thread", job(ZOMBIE_LEADER, limits=SHORT), limited("cpu")),
        ("deaf to signals", job(DEAF, limits=SHORT), limited("cpu")),
        ("stops itself", job("import os\ndef f(): os.kill(os.getpid(), 19)", limits=ASLEEP), limited("wall")),
        ("is stopped and goes on", job(STOPPED), expect(value=1)),
        ("orphans that end", job(ORPHANS, call("f"), call("f")), expect(value=1)),
        ("sockets of many lines", job(SOCKETS, call("f"), call("f")), expect(value=True)),
        ("sleeps", job("import time\ndef f(): time.sleep(60)", limits=ASLEEP), limited("wall")),
        ("kills itself", job("import os\ndef f(): os.kill(os.getpid(), 9)"), expect(signal=9, exit=None, limit=None)),
        ("crashes", job("import ctypes\ndef f(): ctypes.string_at(0)"), expect(signal=11, exit=None, limit=None)),
        ("knocks at sockets", job(DOOR), expect(value=[])),
        ("kills its parents", job(PARENT), lambda execution: None),
        ("memory in steps", job(STEPS), limited("memory")),
        ("memory of many children", job(CHILDREN), limited("memory")),
        ("memory in files without names", job(NAMELESS), refused_or_stopped),
        ("shared memory out of its hands", job(OUT_OF_HAND), limited("memory")),
        ("System V shared memory", job(SYSTEM_V), refused_or_stopped),
        ("flood of errors", job("import os\ndef f():\n    while True: os.write(2, b'x' * 9999)"),
         limited("output")),
        ("flood of the channel", job("import os\ndef f():\n    while True: os.write(3, b'x' * 9999)"),
         limited("output")),
        ("closed streams", job("import os\ndef f():\n    for n in range(3): os.close(n)\n    return 5"),
         expect(value=5)),
        ("closes everything, goes on", job("import os\ndef f():\n    os.closerange(0, 99)\n    while True: pass",
                                           limits=SHORT), limited("cpu")),
        ("disk filler", job(DISK), full_or_stopped),
        ("file too big", job("def f():\n    try: open('big', 'wb').write(b'x' * 20_000_000)\n"
                             "    except OSError: return 'refused'"), expect(value="refused")),
        ("deep directories", job(TREE, call("f"), call("f")), expect(value=True)),
        ("locked directories", job(LOCKED, call("f"), call("f")), expect(value=True)),
        ("leaves before the test", job("import os\nos._exit(0)"), left_early),
        ("leaves within the test", job("import os\ndef f(): os._exit(0)"), left_early),
        ("writes to every descriptor", job(EVERY_FD), only_its_own),
        ("reads other processes", job(PEEK), expect(value=[])),
        ("reads files of the machine", job(reader), expect(value=[])),
        ("writes files of the machine", job(writer), expect(value=[])),
        ("looks for the checker", job(CHECKER_FILES, script("# the-secret\nassert f() == []")), checked(ok=True)),
        ("fools the checker", job(EVERY_FD, script("assert f() == 2")), checked(**{"from": None})),
        ("leaves under the checker", job("import os\ndef f(): os._exit(0)", script("assert f() == 2")),
         checked(**{"from": "program"})),
        ("leaves under a script that catches all", job("import os\ndef f(): os._exit(0)", script(CATCHES_ALL)),
         checked(**{"from": "program"})),
        ("exits under a script that catches", job("import sys\ndef f(): sys.exit()",
                                                   script("try:\n    f()\nexcept Exception: pass")),
         checked(**{"from": "program"})),
        ("hangs under the checker", job("def f():\n    while True: pass", script("assert f() == 2"), limits=SHORT),
         limited("cpu")),
        ("new namespaces", job(spread), expect(value=True)),
        ("traces", job(trace), expect(value=-1)),
        ("leaves System V IPC", job(QUEUE), expect(value=1)),
        ("reads its input late", job("import time\ntime.sleep(0.2)\nprint(len(input()))", stdio("x" * 200_000)),
         expect(stdout="200000\n")),
    ]  # fmt: skip
