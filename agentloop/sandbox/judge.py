"""The judge: one stdlib-only file that does all process work, the same in every sandbox backend.

Started as `python3 -I -S judge.py CONFIG`, CONFIG being a JSON object:
  "work": directory of its own (a tmpfs where possible); "uid", "checker_uid": who programs and checkers run as, or null
  to stay who the judge is; "scratch": other directories a program may write, emptied after every test (["/tmp", ...]);
  "cgroup": true where the judge's cgroup holds the lane alone (a container); "isolation": words for `hello`;
  "fork": true where tests may be forks of an interpreter that was started beforehand (see `Forker`).

Wire protocol 1: JSON lines in UTF-8; host -> judge on stdin, judge -> host on stdout. It knows processes, files, pipes
and limits and no language: what is special to one is argv and files, made by the host (`agentloop.sandbox.languages`).

hello, the judge's first line:
  {"hello": {"protocol": 1, "python": "3.11.2", "uid": 0, "isolation": {mechanisms in force}}}
job (host -> judge):
  {"id": str,
   "files": {relpath: text},            laid down in {src}, which is read-only once the build is over
   "tools": {"id": str, "files": {relpath: text}, "argv": [...], "limits": {...},    optional: helpers in {tools};
             "forker": [...]},          laid and built by argv when a lane has none of this id, kept till it meets
                                        another, then without "files"; "forker": what tests may be forks of
   "build": {"argv": [...], "limits": {...}} | null,      run once in {src}; exit status not 0 -> no test is run
   "tests": [{"id": str, "stdin": str, "channel": bool, "argv": [...],
              "forked": [...],          with a forker: its arguments instead of argv
              "gated": bool,            argv waits for a byte on AGENTLOOP_GATE, if that is set, before all else
              "checker": null | {"argv": [...], "files": {...}, "stdin": str}}],
   "limits": {"cpu", "wall": seconds, "memory", "output", "file_size": bytes, "processes", "open_files"},
   "max_timeouts": int,                 after so many timed-out tests the others are recorded as skipped
   "stop": str}                         optional: a test whose channel (its checker's, if any) begins so is the last run
  In argv "{src}" is the directory of "files" (a checker's: of its own), "{tools}" that of the tools, "{python}" the
  judge's interpreter.
  Each test is a process of its own: new session, empty writable cwd, stdin a file, small fixed environment.
  "channel": a pipe for its result, descriptor in AGENTLOOP_CHANNEL. With a checker, a second process whose files the
  program cannot read: it writes calls to AGENTLOOP_CALLS, which the program reads as its AGENTLOOP_CALLS; what the
  program writes to its AGENTLOOP_CHANNEL the checker reads as AGENTLOOP_ANSWERS; the checker's own AGENTLOOP_CHANNEL
  leads to the judge, where the program cannot reach it. AGENTLOOP_CAP is the cap of a channel in bytes.
records (judge -> host):
  {"job": id, "build": REC}
  {"job": id, "test": test id, ...REC, "checker": REC where there was one}  or  {"job", "test", "skipped": why}
  {"job": id, "end": {"clean": bool, "why": str}}         clean false -> the lane must be destroyed
  {"job": id, "fault": message}                           the judge could not do its work: never a verdict
  REC = {"exit": int | null, "signal": int | null, "wall": s, "cpu": s, "memory": peak bytes | null,
         "limit": null | "cpu" | "wall" | "memory" | "output", "stdout": str, "stderr": str, "channel": str | null,
         "truncated": [stream], "bytes": {"stdout": n, "stderr": n}, "encoding": "utf-8" | "replaced",
         "mechanism": {"memory": "cgroup" | "sampled"}}
The judge ends when its stdin closes, and kills everything before it does.
"""

# pathlib costs start-up time in every lane, and knows no dir_fd.
# ruff: noqa: PTH101, PTH102, PTH103, PTH106, PTH110, PTH112, PTH118, PTH120, PTH123, PTH208
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import resource
import select
import selectors
import signal
import socket
import stat
import sys
import time

FIRST_FD = 16
"""Descriptors of the judge begin here; 0 to 5 are those of programs and checkers."""
TYPE_CHECKING = False  # without importing typing
if TYPE_CHECKING:
    from typing import Any

PROTOCOL = 1
PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
STACK = 256 * 2**20
SAMPLE = 0.02
"""Seconds between two looks at the processes of a running test."""
FLUSH = 0.05
"""Seconds that a test's record waits for others at most, while none of these takes longer."""
SLACK = 8 * 2**20
"""Bytes that the kernel's figures of a process's memory may be off by, and that one touches before it is another."""
BIG = 32 * 2**20
"""Bytes that a judge has only while a job is big."""
KERNEL = 64 * 2**20
"""Bytes that the kernel may need for what a program does within its limits: tables of pages, sockets, pipes."""
UNWAITED = 0.25
"""CPU seconds that a cgroup must count beyond what the processes tell before it is believed: a forker's are in it."""
PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 2, 4, 36, 38
# fmt: off
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TZ": "UTC",
    "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LOGNAME": "program",  # its uid has no name
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GOMAXPROCS": "2",
}
# fmt: on
_libc = ctypes.CDLL(None, use_errno=True)


class Unable(Exception):
    """The judge cannot do its work: a fault, never a verdict."""


class Stream:
    """One captured stream of a process: at most `cap` bytes are kept, all that were read are counted."""

    def __init__(self, fd: int, cap: int) -> None:
        self.fd, self.cap, self.data, self.seen = fd, cap, bytearray(), 0
        os.set_blocking(fd, False)

    def drain(self) -> bool:
        """Read what is there, without blocking; True while more may come and fits."""
        while self.seen <= self.cap:
            try:
                chunk = os.read(self.fd, 65536)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self.seen += len(chunk)
            self.data += chunk[: self.cap - len(self.data)]
        return False

    def text(self) -> tuple[str, bool]:
        """The text, and whether all was UTF-8; a character cut by the cap counts as such."""
        data = bytes(self.data)
        try:
            return data.decode(), True
        except UnicodeDecodeError as error:
            if self.seen > self.cap and error.reason == "unexpected end of data":
                return data[: error.start].decode(), True
            return data.decode(errors="replace"), False


class Process:
    """A started program or checker, and what is known of it and its children."""

    def __init__(self, pid: int, report: int | None, streams: dict[str, Stream], floor: int, memory: int) -> None:
        self.pid, self.report, self.streams = pid, report, streams
        self.floor, self.memory = floor, memory
        self.started, self.ended = time.monotonic(), 0.0
        self.status: int | None = None
        self.limit: str | None = None
        self.reaped, self.cpu, self.peak = 0.0, 0.0, 0

    def begun(self) -> bool:
        """Whether it is what was to be started, and no longer a copy of the judge: that pipe ends with exec."""
        return "failure" not in self.streams or not self.streams["failure"].drain()

    def over(self, limit: str, amount: float = 1, most: float = 0) -> None:
        if amount > most:
            self.limit = self.limit or limit

    def peaked(self, peak: int) -> None:
        """Note the kernel's word on a peak. It counts in the judge's own memory, of which the process began as a copy:
        so much alone is no word on the process, and breaks no limit."""
        self.peak = max(self.peak, peak if peak > self.floor else min(peak, self.memory))

    def record(self, mechanism: str) -> dict[str, Any]:
        status = None if self.limit else self.status
        texts = {name: stream.text() for name, stream in self.streams.items()}
        return {
            "exit": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            "wall": round(self.ended - self.started, 4),
            "cpu": round(self.cpu, 4),
            "memory": self.peak or None,
            "limit": self.limit,
            "stdout": texts["stdout"][0],
            "stderr": texts["stderr"][0],
            "channel": texts["channel"][0] if "channel" in texts else None,
            "truncated": [name for name, stream in self.streams.items() if stream.seen > stream.cap],
            "bytes": {name: self.streams[name].seen for name in ("stdout", "stderr")},
            "encoding": "utf-8" if all(good for _, good in texts.values()) else "replaced",
            "mechanism": {"memory": mechanism},
        }


class OwnUid:
    """How a forked child gives up its powers just before exec: to a uid of its own, then whatever `harden` adds.

    `own_root`: every program lives under a small init, with writable places that vanish with it (a local level).
    """

    own_root = False

    def __init__(
        self, harden: Any = None, disk_full: Any = lambda cwd: False, blank: Any = None, shared: Any = None
    ) -> None:
        self.harden, self.disk_full, self.shared = harden, disk_full, shared
        self.blank = blank or (lambda: os.memfd_create("stdin"))

    def enter(self, judge: Judge, role: str, limits: dict[str, Any], report: int | None) -> None:
        """Called in the child; `role`: see `Judge.places`. Returns in the process that is to exec."""
        uid = judge.uids["checker" if role == "checker" else "program"]
        if uid is not None:
            first_to_go("self")
            resource.setrlimit(*process_limit(limits["processes"]))
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        if self.harden:
            self.harden(judge, role, limits)


class Forker:
    """An interpreter started beforehand; each test can be a fork of it.

    It holds nothing of any job: for each byte that it reads it forks a process that calls back on the door, and is told
    there what to run, with which descriptors, as whom. It waits for that process and reports how it ended. Its standard
    streams are of the kinds that programs have (a file, pipes), so that what it made of them at its start fits theirs.
    """

    def __init__(self, argv: list[str], folder: str, limits: dict[str, Any]) -> None:
        fresh(folder, 0o700, None)
        self.stack = stack_limit(limits)
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.bind(f"{folder}/door")
        self.door.listen(1)
        end, self.bell = os.pipe()
        self.told, tell = os.pipe()
        os.set_blocking(self.told, False)
        streams = [os.memfd_create("stdin"), *os.pipe()]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                for number, fd in enumerate((streams[0], streams[2], streams[2], end, tell)):
                    os.dup2(fd, number)
                resource.setrlimit(*self.stack)
                os.execve(argv[0], [*argv, f"{folder}/door"], {**ENVIRONMENT, "LD_BIND_NOW": "1"})
            finally:
                os._exit(127)
        close([end, tell, *streams])

    def fork(self) -> tuple[int, socket.socket]:
        """A new process, and the line on which it waits for its orders."""
        try:
            os.write(self.bell, b"f")
            # A word on the other line means that it, or what it forked, has died.
            knocks, _, _ = select.select([self.door.fileno(), self.told], [], [], 10)
            if self.door.fileno() not in knocks:
                raise OSError("it has died" if knocks else "nothing in 10 seconds")
            line, _ = self.door.accept()
        except OSError as error:
            raise Unable(f"the interpreter that forks does not answer: {error}") from error
        return int.from_bytes(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder), line

    def ended(self) -> tuple[int, int, float, int] | None:
        """The fork that has ended, if one has: its pid, status, CPU seconds and peak kilobytes."""
        try:
            words = os.read(self.told, 64).split()
        except BlockingIOError:
            return None
        return (int(words[0]), int(words[1]), float(words[2]), int(words[3])) if words else None

    def close(self) -> None:
        self.door.close()
        close([self.bell, self.told])


class Judge:
    """Runs jobs, one after the other. `program` and `checker` are what runs just now."""

    def __init__(self, config: dict[str, Any], confinement: Any = None) -> None:
        self.config, self.confinement = config, confinement or OwnUid()
        names = ("src", "run", "checker", "tools", "fork")
        self.src, self.cwd, self.checker_src, self.tools, self.fork = (f"{config['work']}/{name}" for name in names)
        self.tools_id = None
        self.uids: dict[str, int | None] = {"program": config.get("uid"), "checker": config.get("checker_uid")}
        self.scratch = [path for path in config.get("scratch", []) if os.path.isdir(path)]
        self.cgroup = Cgroup([config["work"], *self.scratch]) if config.get("cgroup") else None
        self.python = config.get("python") or sys.executable
        self.program: Process | None = None
        self.checker: Process | None = None
        self.forker: Forker | None = None
        self.gates, self.heir = False, 0
        self.sockets = os.open("/proc/net/unix", os.O_RDONLY) if os.path.exists("/proc/net/unix") else None
        self.own_network = self.unix_sockets() == 0
        self.base = self.ours = self.given = 0
        self.foreign, self.clock = set(), 0.0  # type: set[int], float
        self.input, self.jobs = bytearray(), []  # type: tuple[bytearray, list[bytearray]]
        self.unsent, self.sent_at = b"", 0.0
        self.selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Answer jobs until stdin closes; then kill everything."""
        null = os.open("/dev/null", os.O_RDWR)
        if self.uids["program"] is not None:
            os.setgroups([])
            with contextlib.suppress(PermissionError):  # a filter may forbid it of other processes
                resource.prlimit(os.getpid(), resource.RLIMIT_CORE)
                self.gates, self.heir = not self.confinement.harden, death_signal()
                resource.setrlimit(resource.RLIMIT_STACK, (at_most(resource.RLIMIT_STACK, STACK),) * 2)
        self.output = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
        os.dup2(null, 1)
        for _ in range(FIRST_FD - null - 1):  # low numbers are for programs: nothing to be moved out of their way
            os.dup(null)
        for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_DUMPABLE, 0), (PR_SET_NO_NEW_PRIVS, 1)):
            prctl(option, value)
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):  # handlers, unlike "ignore", end with exec
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 4096) and self.reap())
        self.selector.register(0, selectors.EVENT_READ, self.read_input)
        hello = {"protocol": PROTOCOL, "python": sys.version.split()[0], "uid": os.getuid()}
        try:
            self.say({"hello": {**hello, "isolation": self.config.get("isolation", {})}})
            while True:
                while not self.jobs:
                    self.turn(None)
                self.answer(self.jobs.pop(0))
        except (EOFError, BrokenPipeError):
            pass
        finally:
            self.left()
            self.end_forker()

    def turn(self, timeout: float | None) -> None:
        for key, _ in self.selector.select(timeout):
            key.data()

    def read_input(self) -> None:
        if not (chunk := os.read(0, 1 << 20)):
            raise EOFError
        self.input += chunk
        if b"\n" in chunk:
            *lines, self.input = self.input.split(b"\n")
            self.jobs += lines

    def say(self, record: dict[str, Any]) -> None:
        """Tell the host. A test's record may wait a moment for the next ones: many hands pass each write on."""
        self.unsent += json.dumps(record).encode() + b"\n"
        if "test" not in record or time.monotonic() - self.sent_at > FLUSH:
            write(self.output, self.unsent)
            self.unsent, self.sent_at = b"", time.monotonic()

    # -- one job ---------------------------------------------------------------------------------------------------

    def answer(self, line: bytearray) -> None:
        name = None
        try:
            job = json.loads(line)
            name = job["id"]
            self.run_job(job)
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:
            self.kill()
            self.say({"job": name, "fault": f"{type(error).__name__}: {error}"})
        else:
            why = self.left()
            self.say({"job": name, "end": {"clean": not why, "why": why}})

    def run_job(self, job: dict[str, Any]) -> None:
        limits, build, tools, timeouts = job["limits"], job.get("build"), job.get("tools"), 0
        if tools and tools["id"] != self.tools_id:
            self.tools_id = None  # those that it has are gone, whether the new ones can be built or not
            self.lay(self.tools, tools["files"], 0o755, self.uids["program"])
            record, _ = self.run("tools", tools, tools["limits"], self.tools)
            if record["exit"] != 0:
                raise Unable(f"tools: {record['stderr'][-2000:]}")
            hand_over(self.tools, os.getuid())
            self.tools_id = tools["id"]
            self.end_forker()
        if tools and "forker" in tools and self.config.get("fork"):
            self.start_forker(tools["forker"], limits)
        self.base, self.ours = self.cgroup.memory() if self.cgroup else (0, 0)
        if self.confinement.shared:
            self.confinement.shared.begin()
        self.foreign = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
        self.lay(self.src, job["files"], 0o755, self.uids["program"] if build else None)
        if build:
            record, _ = self.run("build", build, build["limits"], self.src)
            self.say({"job": job["id"], "build": record})
            if record["exit"] != 0:
                return
            hand_over(self.src, os.getuid())
        for test in job["tests"]:
            head = {"job": job["id"], "test": test["id"]}
            if timeouts >= job.get("max_timeouts", 2):
                self.say({**head, "skipped": f"{timeouts} tests before it timed out"})
                continue
            if test.get("checker"):
                self.lay(self.checker_src, test["checker"]["files"], 0o700, self.uids["checker"])
            if not self.confinement.own_root:
                fresh(self.cwd, 0o700, self.uids["program"])
            program, checker = self.run("program", test, limits, self.cwd)
            timeouts += program["limit"] in ("cpu", "wall")
            self.say({**head, **program, **({"checker": checker} if checker else {})})
            if "stop" in job and ((checker or program)["channel"] or "").startswith(job["stop"]):
                return

    def start_forker(self, argv: list[str], limits: dict[str, Any]) -> None:
        self.reap()  # it may have died since the last job
        if self.forker and self.forker.stack != stack_limit(limits):
            self.end_forker()  # how far a stack may grow is laid down when a process starts
        if not self.forker:
            self.forker = Forker([self.filled(item, self.src) for item in argv], self.fork, limits)
            self.selector.register(self.forker.told, selectors.EVENT_READ, self.reap)

    def drop_forker(self) -> int:
        assert self.forker
        pid, forker, self.forker = self.forker.pid, self.forker, None
        self.selector.unregister(forker.told)
        forker.close()
        return pid

    def end_forker(self) -> None:
        if self.forker:
            pid = self.drop_forker()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def filled(self, text: str, src: str) -> str:
        for word, value in (("{src}", src), ("{tools}", self.tools), ("{python}", self.python)):
            text = text.replace(word, value)
        return text

    def lay(self, base: str, files: dict[str, str], mode: int, uid: int | None) -> None:
        """A fresh directory with these files, all given to `uid` unless that is None."""
        fresh(base, mode, None)
        for name, text in files.items():
            if not {"", ".", ".."}.isdisjoint(name.split("/")):
                raise Unable(f"bad file name {name!r}")
            path = os.path.join(base, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
                file.write(text)
        if uid is not None:
            hand_over(base, uid)

    def places(self, role: str) -> tuple[list[str], str]:
        """The directories that a process of this role may read, and the one it may write ('' for a checker)."""
        return {
            "tools": ([], self.tools),
            "build": ([self.tools], self.src),
            "program": ([self.tools, self.src], self.cwd),
            "checker": ([self.tools, self.checker_src], ""),
        }[role]

    def left(self) -> str:
        """Clean the lane after a job; what could not be cleaned, or ''."""
        if not self.kill():
            return "processes left"
        try:
            for path in (self.src, self.cwd, self.checker_src):
                discard(path)
            for path in self.scratch:
                if empty(path):
                    return f"files left in {path}"
        except OSError as error:
            return f"files left: {error}"
        uids = {str(uid) for uid in self.uids.values() if uid is not None}
        return "System V IPC left" if uids and system_v_of(uids) else ""

    # -- one test --------------------------------------------------------------------------------------------------

    def run(self, role: str, test: dict[str, Any], limits: dict[str, Any], cwd: str) -> tuple[Any, Any]:
        """Run a program, with its checker beside it if it has one, to the end; none of their processes is left."""
        spec, ours, passed = test.get("checker"), [], {}  # type: tuple[Any, list[int], dict[str, int]]
        self.clock, self.given = self.lane_cpu(), 0
        try:
            if spec:
                ours = [*os.pipe(), *os.pipe()]
                passed = {"AGENTLOOP_CALLS": ours[0], "AGENTLOOP_CHANNEL": ours[3]}
                theirs = {"AGENTLOOP_CALLS": ours[1], "AGENTLOOP_ANSWERS": ours[2]}
                self.checker = self.start("checker", {**spec, "channel": True}, limits, self.checker_src, theirs)
                test = {**test, "channel": False}
            self.program = program = self.start(role, test, limits, cwd, passed)
            close(ours)
            ours = []
            self.watch(program, limits)
            stopped = program.status is None
        finally:
            close(ours)
            ended, running = self.kill(), [process for process in (self.program, self.checker) if process]
            self.program = self.checker = None
            for process in running:
                self.finish(process)
        if not ended:
            raise Unable("processes that cannot be killed")
        for process, each in zip(running, (test, spec), strict=False):
            if "failure" in process.streams and (why := process.streams.pop("failure").text()[0]):
                raise Unable(f"cannot start {each['argv'][0]}: {why}")
        if not self.confinement.own_root:
            if self.own_network and self.unix_sockets() > bool(self.forker):  # that one's door
                collect_sockets()
                if self.unix_sockets() > bool(self.forker):
                    raise Unable("sockets left")
            for path in self.scratch:
                empty(path)
        if self.cgroup and self.cgroup.killed():
            program.over("memory")
        self.count_unwaited(self.lane_cpu(), *running)
        for process in running:
            process.over("cpu", process.cpu, limits["cpu"])
            process.over("memory", process.peak, limits["memory"])
            if process.status is None and not process.limit and not stopped:
                raise Unable("a program's exit status was lost")
        if stopped:  # by us, because its checker had ended
            program.status = None
        records = [process.record("cgroup" if self.cgroup else "sampled") for process in running]
        return records[0], records[1] if spec else None

    def start(self, role: str, spec: dict[str, Any], limits: Any, cwd: str, passed: dict[str, int]) -> Process:
        """Start one process; `passed` are descriptors for it by the name of the variable that tells their number."""
        src = self.checker_src if role == "checker" else self.src
        launch, key = self.launch, "argv"
        if self.forker and "forked" in spec:
            launch, key = self.launch_fork, "forked"
        elif spec.get("gated") and self.gates:
            launch = self.launch_gated
        argv = [self.filled(item, src) for item in spec[key]]
        env = {**ENVIRONMENT, "HOME": cwd, "AGENTLOOP_CAP": str(limits["output"])}
        ends, streams, report = [self.confinement.blank()], {}, (None, None)  # type: list[int], dict[str, Stream], Any
        try:
            write(ends[0], spec.get("stdin", "").encode(errors="surrogatepass"))
            self.given += os.lseek(ends[0], 0, os.SEEK_CUR)
            os.lseek(ends[0], 0, os.SEEK_SET)
            for name in ("stdout", "stderr", "channel")[: 3 if spec.get("channel") else 2]:
                fd, end = os.pipe()
                streams[name] = Stream(fd, limits["output"])
                ends.append(end)
            if (uid := self.uids["checker" if role == "checker" else "program"]) is not None:
                for end in ends[1:3]:  # else it may not open its own /dev/stdout
                    os.fchown(end, uid, uid)
            names = (*["AGENTLOOP_CHANNEL"][: len(ends) - 3], *passed)
            env.update({name: str(3 + n) for n, name in enumerate(names)})
            report = os.pipe() if self.confinement.own_root else report
            floor = 0 if key == "forked" else own_peak() + SLACK
            pid, failure = launch(role, argv, env, [*ends, *passed.values()], limits, cwd, report[1])
            process = Process(pid, report[0], streams, floor, limits["memory"])
        finally:
            close([*ends, *([report[1]] if report[1] else [])])
        for stream in streams.values():
            self.selector.register(stream.fd, selectors.EVENT_READ, lambda s=stream: self.drain(process, s))
        if failure is not None:
            streams["failure"] = Stream(failure, 4096)  # looked at when all is over: then none has to wake for it
        return process

    def launch(
        self, role: str, argv: list[str], env: Any, fds: list[int], limits: Any, cwd: str, report: int | None
    ) -> tuple[int, int | None]:
        """Start whatever argv says; its pid, and a pipe that tells why if it cannot."""
        failure, failed = os.pipe()
        start = resource_limits(limits)
        try:
            pid = os.fork()
            if pid == 0:
                try:  # as little as may be: each page that is touched here is copied
                    os.setsid()
                    for number, fd in enumerate(fds):
                        os.dup2(fd, number)
                    for number, value in start:
                        resource.setrlimit(number, value)
                    self.confinement.enter(self, role, limits, report)
                    os.chdir(cwd)
                    os.execve(argv[0], argv, env) if "/" in argv[0] else os.execvpe(argv[0], argv, env)
                except BaseException as error:
                    os.write(failed, f"{type(error).__name__}: {error}".encode())
                finally:
                    os._exit(127)
        finally:
            os.close(failed)
        return pid, failure

    def launch_gated(
        self, role: str, argv: list[str], env: Any, fds: list[int], limits: Any, cwd: str, report: int | None
    ) -> tuple[int, int | None]:
        """The same without a copy of the judge, which costs more than all else here.

        The new process is who the judge is just then: one of that uid could kill it, so the gate opens only once the
        judge is itself again. Limits are set meanwhile too: of others' processes it may not change them.
        """
        uid = self.uids["program"]
        assert uid is not None
        gate, opened = os.pipe()
        start = [*resource_limits(limits), process_limit(limits["processes"])]
        stack, (size, _) = stack_limit(limits)
        start.remove((stack, (size, size)))  # exec lays the stack out, and puts the limit back that it began with
        resource.setrlimit(stack, (size, resource.getrlimit(stack)[1]))
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate([*fds, gate])]
        env = {**env, "AGENTLOOP_GATE": str(len(fds))}
        try:
            os.chdir(cwd)
            os.setresgid(uid, uid, 0)
            os.setresuid(uid, uid, 0)
            try:
                pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
                until = time.monotonic() + 5
                while start:
                    try:
                        resource.prlimit(pid, *start[-1])
                        start.pop()
                    except PermissionError:  # its exec has left the judge's memory, and not yet the judge's ids
                        if time.monotonic() > until:
                            raise
            finally:
                os.setresuid(0, 0, 0)
                os.setresgid(0, 0, 0)
                for option, value in ((PR_SET_PDEATHSIG, self.heir), (PR_SET_DUMPABLE, 0)):  # other ids undo both
                    prctl(option, value)
                os.chdir("/")
            first_to_go(pid)
            os.write(opened, b"g")
        finally:
            close([gate, opened])
        return pid, None

    def launch_fork(
        self, role: str, argv: list[str], env: Any, fds: list[int], limits: Any, cwd: str, report: int | None
    ) -> tuple[int, int | None]:
        """The same by a fork of the interpreter that stands ready."""
        assert self.forker
        pid, line = self.forker.fork()
        first_to_go(pid)
        for number, value in [*resource_limits(limits), process_limit(limits["processes"])]:
            resource.prlimit(pid, number, value)
        uid = self.uids["checker" if role == "checker" else "program"]
        words = [cwd, str(uid), str(len(argv)), *argv]
        words += [f"{name}={value}" for name, value in env.items() if name not in ENVIRONMENT]  # that one it has
        socket.send_fds(line, ["\0".join(words).encode()], fds)
        return pid, line.detach()

    def drain(self, process: Process, stream: Stream) -> None:
        if not stream.drain():
            self.selector.unregister(stream.fd)
            process.over("output", stream.seen, stream.cap)

    def watch(self, program: Process, limits: dict[str, Any]) -> None:
        """Until the checker, or the program where there is none, has ended; who goes over a limit is killed."""
        leader = self.checker or program
        deadline, sample = leader.started + limits["wall"], leader.started + SAMPLE
        while leader.status is None or (program.status is None and time.monotonic() < leader.ended + 1):
            self.turn(max(0.0, min(deadline, sample) - time.monotonic()))  # a child's end is among what it waits for
            if time.monotonic() >= sample:
                self.sample(limits)
                sample = time.monotonic() + SAMPLE
            if time.monotonic() >= deadline and leader.status is None:
                (program if program.status is None else leader).over("wall")
            for process in (program, leader):
                if process.limit and process.status is None:
                    self.kill(process)
                    deadline = min(deadline, time.monotonic() + 2)  # a checker whose program is gone soon ends

    def unix_sockets(self) -> int:
        """How many there are in the judge's network namespace, as far as a page shows; -1 where nothing tells."""
        return os.pread(self.sockets, PAGE, 0).count(b"\n") - 1 if self.sockets is not None else -1

    def lane_cpu(self) -> float:
        """CPU seconds of all in the lane but the judge, where a cgroup counts them."""
        return self.cgroup.cpu() - time.process_time() if self.cgroup else 0.0

    def count_unwaited(self, spent: float, program: Process, checker: Process | None = None) -> None:
        """Add what only the cgroup counts: CPU time of children whose ends the program ignores, so that none waits."""
        cpu = spent - self.clock - (checker.cpu if checker else 0.0)
        program.cpu = cpu if cpu > program.cpu + UNWAITED else program.cpu

    def sample(self, limits: dict[str, Any]) -> None:
        # What all have comes first, then the checker: else what that takes meanwhile would seem to be its program's.
        spent, (held, taken) = self.lane_cpu(), self.cgroup.memory() if self.cgroup else (0, 0)
        most, shared = limits["memory"], self.confinement.shared
        for process in filter(None, (self.checker, self.program)):
            rows, is_program = self.tree(process), process is self.program
            if not rows and not is_program and process.status is None:
                return  # it has just ended, and how much it had is not told yet
            beside = self.checker.peak if self.checker and is_program else 0
            if is_program:
                self.count_unwaited(spent, process, self.checker)
            if not rows or not process.begun():
                continue
            process.cpu = max(process.cpu, process.reaped + sum(cpu for _, cpu, _ in rows.values()))
            if self.confinement.own_root:  # its init and the parent of that are copies of the judge
                rows = {pid: row for pid, row in rows.items() if process.pid not in (pid, row[0])}
            used = sum(rss for *_, rss in rows.values())
            if used > most:  # pages shared after a fork were counted more than once
                once = shared.shares(rows, most) if shared else used
                used = min(used, held - self.base - beside if self.cgroup else once)
            if is_program:  # what no process's figures tell: shared memory in no one's hands, buffers
                ours = self.ours + KERNEL + self.given + 4 * limits["output"] + beside
                used = max(used, taken - ours if self.cgroup else shared.unseen(rows, most) if shared else 0)
            process.peak = max(process.peak, used)
            process.over("memory", process.peak, most)
            process.over("cpu", process.cpu, limits["cpu"])
            if is_program and self.confinement.disk_full(self.cwd):
                process.over("output")

    def tree(self, process: Process | None = None) -> dict[int, Any]:
        """The judge's descendants: all, the checker's (those below it), or the program's (all others, orphans too)."""
        table = processes(self.foreign)
        children: dict[int, list[int]] = {}
        for pid, row in table.items():
            children.setdefault(row[0], []).append(pid)

        def below(pid: int) -> dict[int, Any]:
            found, stack = {}, [pid]
            while stack:
                for child in children.get(stack.pop(), ()):
                    found[child] = table[child]
                    stack.append(child)
            return found

        everything = below(os.getpid()) | (below(self.forker.pid) if self.forker else {})
        if not (process and self.checker):
            return everything
        its = {pid: row for pid, row in everything.items() if pid == self.checker.pid} | below(self.checker.pid)
        return its if process is self.checker else {pid: row for pid, row in everything.items() if pid not in its}

    def reap(self) -> bool:
        """Collect every child that ended: ours, and orphans that fell to us. True when none but the forker is left.

        That is a proof: the judge is the reaper of all its descendants, so each hangs below a child of the judge. With
        a forker there always is a child: then a look at all processes must show no other, and none may end meanwhile.
        """
        none_seen = False
        while True:
            if self.forker and (report := self.forker.ended()):
                self.collect(*report)
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                if none_seen or not self.forker or (self.program and self.program.status is None):
                    return none_seen
                if self.cgroup and self.cgroup.alone(2):  # the judge and its forker
                    return True
                if self.tree():
                    return False
                none_seen = True
                continue
            none_seen = False
            if os.WIFSTOPPED(status):  # it made us its tracer, and would wait for our word
                os.kill(pid, signal.SIGKILL)
                continue
            if self.forker and pid == self.forker.pid:
                self.drop_forker()  # the next job starts another
                continue
            self.collect(pid, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)

    def collect(self, pid: int, status: int, cpu: float, peak: int) -> None:
        """Note how a process has ended, and what it took."""
        process = self.checker if self.checker and pid == self.checker.pid else self.program
        if process:
            process.reaped += cpu
            process.cpu = max(process.cpu, process.reaped)
            process.peaked(peak * 1024)
            if pid == process.pid:
                process.status, process.ended = status, time.monotonic()

    def kill(self, process: Process | None = None) -> bool:
        """Kill a process's whole tree, or all there is; False if something is still there after 10 seconds."""
        until = time.monotonic() + 10
        while not self.reap():
            self.foreign = {self.forker.pid} if self.forker else set()  # a number may have been used again
            for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none forks between look and kill
                pids = self.tree(process)
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            if (process and not pids) or time.monotonic() > until:
                return not pids
            time.sleep(0.0005)  # dying takes the kernel a moment
        return True

    def finish(self, process: Process) -> None:
        """After the end of a whole tree: read what is left in its pipes, and free them."""
        for stream in process.streams.values():
            if stream.fd in self.selector.get_map():
                self.selector.unregister(stream.fd)
            stream.drain()
            os.close(stream.fd)
            process.over("output", stream.seen, stream.cap)
        process.ended = process.ended or time.monotonic()
        if process.report is not None:  # an init's word on how the program below it ended
            with open(process.report, "rb") as file:
                process.status = int(text) if (text := file.read()) else None


def processes(skip: set[int]) -> dict[int, tuple[int, float, int]]:
    """The process table but for `skip`: {pid: (parent, CPU seconds with waited-for children, resident bytes)}.

    Zombies are left out, but for one whose other threads still run.
    """
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in skip:
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in b"ZX" or int(fields[17]) > 1:
                    table[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICK, int(fields[21]) * PAGE)
    return table


def own_peak() -> int:
    """The judge's own peak of memory in bytes; a big one is first set back to what it has now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    if usage.ru_maxrss * 1024 > BIG:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "wb", 0) as file:
            file.write(b"5")
        usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss * 1024


class Cgroup:
    """The figures of the cgroup that holds the lane alone, version 1 or 2. `places`: where files are in memory."""

    def __init__(self, places: list[str]) -> None:
        self.places = places
        old = os.path.exists("/sys/fs/cgroup/memory/memory.oom_control")
        base, tasks = "/sys/fs/cgroup/memory/memory." if old else "/sys/fs/cgroup/memory.", "pids/" if old else ""
        clock = "cpuacct/cpuacct.usage" if old else "cpu.stat"
        self.usage, self.used_key = os.open(f"{base}stat", os.O_RDONLY), b"total_rss" if old else b"anon"
        self.events = os.open(base + ("oom_control" if old else "events"), os.O_RDONLY)
        paths = [f"/sys/fs/cgroup/{name}" for name in (f"{tasks}pids.current", clock)]
        # None: an engine without that controller
        self.tasks, self.clock = (os.open(path, os.O_RDONLY) if os.path.exists(path) else None for path in paths)
        self.kills = 0
        self.killed()

    def memory(self) -> tuple[int, int]:
        """Bytes that belong to processes; those that the kernel cannot have back: shared ones too, but no files, and
        its own for the processes."""
        text, files = os.pread(self.usage, 8192, 0), map(os.statvfs, self.places)
        taken = sum(figure(text, key) for key in (self.used_key, b"shmem", b"sock", b"kernel"))
        taken -= figure(text, b"slab_reclaimable") + sum((f.f_blocks - f.f_bfree) * f.f_frsize for f in files)
        return figure(text, self.used_key), taken

    def cpu(self) -> float:
        """CPU seconds of all that ever was in it; 0 where that is not counted."""
        text = os.pread(self.clock, 4096, 0) if self.clock is not None else b"0"
        return figure(text, b"usage_usec") / 1e6 if b" " in text else int(text) / 1e9

    def killed(self) -> bool:
        """Whether the kernel has killed for memory since this was last asked."""
        before, self.kills = self.kills, figure(os.pread(self.events, 8192, 0), b"oom_kill")
        return self.kills > before

    def alone(self, count: int) -> bool:
        """Whether it is known that there are no more than so many tasks (zombies are some)."""
        return self.tasks is not None and int(os.pread(self.tasks, 32, 0)) <= count


def collect_sockets() -> None:
    """Have the kernel free sockets in flight that hold but each other and files, whose space a later program lacks.

    It looks for them when a socket is closed and frees them in a moment, of which only such files tell: a pipe's end is
    put among them. That the second is freed says that all are which were freed with the first. At most 5 seconds each.
    """
    for _ in range(2):
        freed, end = os.pipe()
        one, other = socket.socketpair()
        socket.send_fds(one, [b"x"], [one.fileno(), other.fileno(), end])
        one.close()
        other.close()
        os.close(end)
        until = time.monotonic() + 5
        while not select.select([freed], [], [], 0.002)[0] and time.monotonic() < until:
            for each in socket.socketpair():
                each.close()
        os.close(freed)


def figure(text: bytes, key: bytes) -> int:
    """The number after `key` in lines of keys and numbers; 0 without one."""
    return int((b"\n" + text).partition(b"\n" + key + b" ")[2].split(b"\n")[0] or 0)


def system_v_of(uids: set[str]) -> bool:
    """Whether one of these uids still has shared memory, semaphores or message queues."""
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/sysvipc/{kind}") as file:
            names, *lines = (line.split() for line in file)
            if any(line[names.index(column)] in uids for line in lines for column in ("uid", "cuid")):
                return True
    return False


def empty(path: str) -> bool:
    """Remove everything in a directory, however deep and whatever its permissions; True if something is left."""
    if not os.listdir(path):
        return False
    # Names that no program has taken beforehand.
    top, serial, mark = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW), 0, os.urandom(8).hex()
    try:
        names = os.listdir(top)
        while names:
            name = names.pop()
            with contextlib.suppress(OSError):
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                os.chmod(name, 0o700, dir_fd=top)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                try:
                    for below in os.listdir(inner):
                        if stat.S_ISDIR(os.lstat(below, dir_fd=inner).st_mode):  # moves up: no depth is too great
                            os.chmod(below, 0o700, dir_fd=inner)
                            serial += 1
                            os.rename(below, f".{mark}{serial}", src_dir_fd=inner, dst_dir_fd=top)
                            names.append(f".{mark}{serial}")
                        else:
                            os.unlink(below, dir_fd=inner)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
        return bool(os.listdir(top))
    finally:
        os.close(top)


def discard(path: str) -> None:
    """Remove a directory with all in it, if it is there."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError:
        os.chmod(path, 0o700)
        empty(path)
        os.rmdir(path)


def fresh(path: str, mode: int, uid: int | None) -> None:
    """An empty directory at `path`, owned by `uid` or by the judge."""
    discard(path)
    os.mkdir(path, mode)  # the umask takes nothing of the modes that are used
    if uid is not None:
        os.chown(path, uid, uid)


def hand_over(base: str, uid: int) -> None:
    """Give a directory and all in it to `uid`."""
    for folder, _, names in os.walk(base):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.lchown(path, uid, uid)


def first_to_go(pid: int | str) -> None:
    """Let the kernel kill this process before others when memory runs out."""
    fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)
    os.write(fd, b"1000")
    os.close(fd)


def write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def resource_limits(limits: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
    """What a program gets by setrlimit, each at most what the judge itself may have."""
    values = {"CORE": 0, "CPU": int(limits["cpu"]) + 2, "STACK": min(STACK, limits["memory"])}
    out = []
    for name, value in {**values, "FSIZE": limits["file_size"], "NOFILE": limits["open_files"]}.items():
        number = getattr(resource, f"RLIMIT_{name}")
        # A second above for CPU: SIGXCPU, which says what it was, comes before the SIGKILL of the hard limit.
        out.append((number, (at_most(number, value), at_most(number, value + (name == "CPU")))))
    return out


@functools.cache
def at_most(number: int, value: int) -> int:
    """This value of a limit, or the judge's own hard limit (as it is once jobs are run) where that is less."""
    most = resource.getrlimit(number)[1]
    return value if most < 0 else min(value, most)


def process_limit(count: int) -> tuple[int, tuple[int, int]]:
    return resource.RLIMIT_NPROC, (at_most(resource.RLIMIT_NPROC, count),) * 2


def stack_limit(limits: dict[str, Any]) -> tuple[int, tuple[int, int]]:
    return next(limit for limit in resource_limits(limits) if limit[0] == resource.RLIMIT_STACK)


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def death_signal() -> int:
    """The signal that this process gets when its parent ends; 0 for none."""
    number = ctypes.c_int()
    _libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    return number.value


def main(config: dict[str, Any], confinement: Any = None) -> None:
    os.umask(0o022)
    Judge(config, confinement).serve()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
