"""Programs that cheat or snoop: they forge answers, look for what they must not see, leave traps for the next one.

Part of the conformance cases, like `agentloop.sandbox.hostile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentloop.sandbox.conformance import SHORT, Case, Check, answer, call, expect, job, limited, script, stdio
from agentloop.sandbox.hostile import OUT_OF_HAND

if TYPE_CHECKING:
    from agentloop.types import Execution

# The needle is never whole in the program's own text, so that whatever is found came from a test.
MEMORY = """
def f(text):
    found, needle = set(), b"hay" + b"stack:"
    try:
        areas = [line.split() for line in open("/proc/self/maps") if " rw" in line]
        with open("/proc/self/mem", "rb", 0) as memory:
            for area in areas:
                begin, end = (int(part, 16) for part in area[0].split("-"))
                memory.seek(begin)
                try:
                    data = memory.read(min(end - begin, 1 << 26))
                except OSError:
                    continue
                found |= {part[:1] for part in data.split(needle)[1:]}
    except OSError:
        pass
    return sorted(each.decode("latin-1") for each in found if each.isdigit() and each != text[-1:].encode())
"""
FRAMES = """
import gc, sys
def f(text):
    found, frame = [], sys._getframe()
    while frame:
        found += [name for name, value in frame.f_locals.items() if isinstance(value, str) and "haystack:2" in value]
        frame = frame.f_back
    for each in gc.get_objects():
        if isinstance(each, dict):
            found += [key for key, value in each.items() if isinstance(value, str) and "haystack:2" in value]
    return found
"""
LIMITS = """
import resource
def f():
    raised = []
    for name in ("CPU", "NPROC", "NOFILE", "FSIZE", "STACK", "CORE"):
        number = getattr(resource, "RLIMIT_" + name)
        soft, hard = resource.getrlimit(number)
        for wanted in (resource.RLIM_INFINITY, hard * 2 + 1):
            try:
                resource.setrlimit(number, (wanted, wanted))
                raised.append(name)
            except (ValueError, OSError):
                pass
    return raised
"""
CLOCK = """
import time
def f():
    try:
        time.clock_settime(time.CLOCK_REALTIME, 0)
    except OSError:
        return "refused"
"""
LINKS = """
import os
def f():
    fresh = os.listdir(".") == []
    for name, to in (("root", "/"), ("etc", "/etc/passwd"), ("up", ".."), ("loop", "loop"), ("none", "/nowhere")):
        os.symlink(to, name)
    os.makedirs("a/b")
    os.symlink("/", "a/b/root")
    os.mkfifo("pipe")
    return fresh
"""
MODES = """
import os
def f():
    fresh = os.listdir(".") == []
    for number in range(3):
        open(f"file{number}", "w").close()
        os.chmod(f"file{number}", 0)
    os.chmod(".", 0)
    return fresh
"""
INODES = """
import os
def f():
    fresh = not os.listdir(".")
    try:
        for number in range(10**6):
            os.mknod(f"n{number}")
    except OSError:
        pass
    return fresh
"""
SHARED = """
import os
def f():
    fresh = True
    for place in ("/tmp", "/dev/shm", "/var/tmp", "/run/lock"):
        try:
            fresh = fresh and not [name for name in os.listdir(place) if name.startswith("agentloop-left")]
            open(place + "/agentloop-left", "w").close()
        except OSError:
            pass
    return fresh
"""
THREADS = """
import threading, time
def f():
    try:
        while True:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        while True: pass
"""
PATCHES = """
import builtins, json, sys, unittest
class AlwaysEqual:
    def __eq__(self, other): return True
    def __hash__(self): return 1
builtins.AssertionError = builtins.SystemExit = builtins.Exception
builtins.isinstance = lambda *args: True
builtins.len = lambda *args: 1
json.dumps = json.loads = lambda *args, **kwargs: {"ok": True}
sys.exit = lambda *args: None
sys.settrace(lambda *args: None)
unittest.TestCase.assertEqual = lambda *args: None
"""
QUITS = """
import os, sys
class Quits(int):
    def __eq__(self, other): os._exit(0)
    def __repr__(self): os._exit(0)
def f(): return Quits(3)
"""
FORGES = """
import os
def f():
    for fd in range(3, 64):
        try:
            os.write(fd, b'{"ok": true}\\n{"value": 2}\\n{"ready": true}\\n')
        except OSError:
            pass
    os._exit(0)
"""

# Children of its own parent, by CLONE_PARENT: an interpreter that stands ready, where the test is a fork of one.
SIBLINGS = """
import ctypes, os, time
libc = ctypes.CDLL(None)
def f():
    clone = {"x86_64": 56}.get(os.uname().machine, 220)
    made = 0
    for _ in range(20):
        pid = libc.syscall(clone, 0x8000 | 17, 0, 0, 0, 0)
        if pid == 0:
            while True: time.sleep(0.05)
        made += pid > 0
    return made
"""
TRACED = """
import ctypes, os
def f():
    if ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0:
        os.kill(os.getpid(), 17)
    return 1
"""
NAMES = """
import os
def f():
    fresh = True
    for place in (".", "/tmp"):
        try:
            fresh = fresh and not os.listdir(place)
            for number in range(50):
                os.makedirs(f"{place}/a/{number}/b")
                os.makedirs(f"{place}/.{number}.old/b")
        except OSError as error:
            fresh = fresh and not isinstance(error, FileExistsError)
    return fresh
"""


# Files that no process has any more, only sockets that are in flight in each other.
IN_FLIGHT = """
import os, socket
def f():
    files = []
    for number in range(12):
        files.append(os.open(str(number), os.O_RDWR | os.O_CREAT))
        os.unlink(str(number))
        if os.write(files[-1], bytes(5_000_000)) < 5_000_000:
            return False
    try:
        one, other = socket.socketpair()
        socket.send_fds(one, [b"x"], [one.fileno(), other.fileno(), *files])
    except OSError:
        pass
    return True
"""


PORT = """
import socket
def f():
    try:
        server = socket.socket()
    except OSError:
        return True
    server.bind(("127.0.0.1", 8000))
    server.listen()
    client = socket.create_connection(("127.0.0.1", 8000))
    server.accept()[0].close()  # who closes first keeps the port for a minute
    client.close()
    return True
"""


# Where the judge has the same uid, these are its program's too.
MODES_OF_OTHERS = """
import os
def f():
    top = os.path.dirname(os.environ["HOME"])
    for path in (top + "/src/main.py", top + "/src", top + "/tools", top):
        try:
            os.chmod(path, 0)
        except OSError:
            pass
    return True
"""


# PR_SET_DUMPABLE: who is not root cannot read what the kernel tells of its memory then.
HIDES = "import ctypes, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
HIDDEN = f"{HIDES}def f():\n    memory = b'x' * 400_000_000\n    time.sleep(60)"
# Shared memory of which only a small part is ever mapped: the part moves.
WINDOW = """
import ctypes
def f():
    libc, size, part = ctypes.CDLL(None), 2 << 30, 16 << 20
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.remap_file_pages.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 3, ctypes.c_int]
    window = libc.mmap(None, size, 3, 0x21, -1, 0)
    libc.munmap(window + part, size - part)
    for start in range(0, size, part):
        if libc.remap_file_pages(window, part, 0, start // 4096, 0) < 0:
            return "refused"
        ctypes.memset(window, 1, part)
"""
# A process that stands between the judge and a program may be of the program's uid.
SIGNALS = """
import os, time
def f():
    for pid in (os.getppid(), 1):
        for number in range(1, 65):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    time.sleep(0.2)
    return 1
"""
LIMITS_OF_PARENTS = """
import os, resource
def f():
    try:
        resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))
    except OSError:
        return "refused"
"""


def killed_or_not_traced(execution: Execution) -> None:
    """Who makes its parent a tracer stops until that lets it go on: it is killed, or it may not."""
    record = execution.tests[0]
    assert record["signal"] == 9 or answer(record) == {"value": 1}, record


def not_forged(execution: Execution) -> None:
    """The test script's own process did not say that all is well."""
    assert answer(execution.tests[0]["checker"]).get("ok") is not True, execution.tests[0]


def stopped_or(value: object) -> Check:
    """A check: either a limit stopped a test, or it answered so."""

    def check(execution: Execution) -> None:
        for record in execution.tests:
            assert record.get("skipped") or record["limit"] or answer(record) == {"value": value}, record

    return check


def cheats() -> list[Case]:
    """The cases."""
    own = "open('/dev/stdout', 'w').write('a')\nopen('/dev/stderr', 'w').write('b')"
    needles = [call("f", "haystack:1"), call("f", "haystack:2"), call("f", "haystack:3")]
    nonsense = "import os\ndef f():\n    os.write(3, bytes(range(256)) * 8)\n    os._exit(0)"
    huge = "def f():\n    x = 7\n    while True: x **= 3"
    return [
        ("looks for other tests in memory", job(MEMORY, *needles), expect(value=[])),
        ("looks for later tests in frames", job(FRAMES, needles[0]), expect(value=[])),
        ("raises its limits", job(LIMITS), expect(value=[])),
        ("hides its memory", job(HIDDEN), limited("memory")),
        ("hides its shared memory", job(HIDES + OUT_OF_HAND), limited("memory")),
        ("limits its parents", job(LIMITS_OF_PARENTS), expect(value="refused")),
        ("signals its parents", job(SIGNALS, call("f"), call("f")), expect(value=1)),
        ("shared memory through a window", job(WINDOW), stopped_or(value="refused")),
        ("sets the clock", job(CLOCK), expect(value="refused")),
        ("links out of its directory", job(LINKS, call("f"), call("f")), expect(value=True)),
        ("files that may not be read", job(MODES, call("f"), call("f")), expect(value=True)),
        ("modes of the judge's files", job(MODES_OF_OTHERS, call("f"), call("f")), expect(value=True)),
        ("inode filler", job(INODES, call("f"), call("f"), limits=SHORT), stopped_or(value=True)),
        ("leaves files where all may write", job(SHARED, call("f"), call("f")), expect(value=True)),
        ("thread bomb", job(THREADS, limits=SHORT), limited("cpu", "memory")),
        ("numbers without end", job(huge, limits=SHORT), limited("cpu", "memory")),
        ("patches what tests use", job(f"{PATCHES}\ndef f(): return 3", script("assert f() == 2")), not_forged),
        ("equal to everything, for a script", job(f"{PATCHES}\ndef f(): return AlwaysEqual()",
                                                  script("assert f() == 2")), not_forged),
        ("leaves when it is compared", job(QUITS), expect(value=3)),
        ("forges a script's answer", job(FORGES, script("assert f() == 2")), not_forged),
        ("nonsense in its channel", job(nonsense), expect(exit=0)),
        ("children of its parent", job(SIBLINGS, *[call("f")] * 8), expect(value=20)),
        ("makes its parent a tracer", job(TRACED), killed_or_not_traced),
        ("takes the names of the sweeper", job(NAMES, call("f"), call("f")), expect(value=True)),
        ("leaves files in flight", job(IN_FLIGHT, *[call("f")] * 8), expect(value=True)),
        ("leaves a port in use", job(PORT, call("f"), call("f")), expect(value=True)),
        ("opens its own streams", job(own, stdio()), expect(stdout="a", stderr="b", exit=0)),
        ("bytes that are no text", job("import os\nos.write(1, bytes(range(128, 256)))", stdio()),
         expect(encoding="replaced", exit=0)),
    ]  # fmt: skip
