"""An interpreter that stands ready, in the sandbox: `python fork.pyc SOCKET`. Each fork of it runs one test.

For each byte on descriptor 3 it forks, waits and writes to 4 how the fork ended; the fork asks at the socket what it is
to run, as whom, with which descriptors, and is from then on what `python python.pyc MODE ...` would be. Until then it
never holds anything of a job, and loads only what the interpreter itself needs.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
import gc
import posix
import sys

FAR = 32
"""A descriptor's number above those that a program is given."""
KEPT: list[object] = []
"""Modules that a fork has no more: to take them apart would cost it more than most else that it does."""
REPORT = 64
"""Bytes of a report."""


def stand_ready(door):
    """Fork for each byte on descriptor 3. Returns in the forks only, once they know what to run: its arguments."""
    import _ctypes
    import _socket

    posix.environ.pop(b"LD_BIND_NOW", None)  # for itself alone: a fork would else look up each C function that it calls
    posix.unsetenv("LD_BIND_NOW")
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")
    # A process's first use of these costs more than most programs do.
    compile("", "", "exec")
    _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET).close()
    gc.freeze()  # collections in a fork need not look at (and so copy) what all forks share
    while posix.read(3, 1):
        leave_none()
        pid = posix.fork()
        if pid:
            posix.write(4, (b"%d %d %f %d" % (pid, *wait_for(pid))).ljust(REPORT))
            continue
        near = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        near.connect(door)
        line = _socket.socket(fileno=posix.dup2(near.fileno(), FAR, False))  # out of the way of the program's own
        near.close()
        try:
            return become(line, lambda: _ctypes.call_cdeclfunction(prctl, (4, 1, 0, 0, 0)))
        except BaseException as error:
            line.send(f"{type(error).__name__}: {error}".encode())
            posix._exit(127)
    posix._exit(0)


def leave_none():
    """Collect dead children that an earlier fork gave its parent (CLONE_PARENT): they count against its limit."""
    try:
        while posix.waitpid(-1, posix.WNOHANG)[0]:
            pass
    except OSError:  # no child at all
        pass


def wait_for(pid):
    """Until a fork has ended: its status, CPU seconds with those of its siblings, and peak kilobytes."""
    cpu = 0.0
    while True:
        ended, status, usage = posix.wait4(-1, 0)
        if posix.WIFSTOPPED(status):  # it made us its tracer, and would wait for our word
            posix.kill(ended, 9)
            continue
        cpu += usage.ru_utime + usage.ru_stime
        if ended == pid:
            return status, cpu, usage.ru_maxrss


def become(line, dumpable):
    """Take descriptors, rights, folder and environment that the judge gives on the line; the arguments to run with."""
    text, passed, *_ = line.recvmsg(1 << 20, 1 << 10)
    ((_, _, numbers),) = passed
    fds = [int.from_bytes(numbers[at : at + 4], sys.byteorder) for at in range(0, len(numbers), 4)]
    for place, fd in enumerate(fds):  # first above all of them, so that none is covered before it is moved
        posix.dup2(fd, FAR + 1 + place)
    for place in range(len(fds)):
        posix.dup2(FAR + 1 + place, place)
    posix.closerange(len(fds), FAR)
    posix.closerange(FAR + 1, FAR + 1 + len(fds))
    cwd, uid, count, *words = text.decode("utf-8", "surrogateescape").split("\0")
    posix.setsid()
    posix.setgroups([])
    posix.setresgid(int(uid), int(uid), int(uid))
    posix.setresuid(int(uid), int(uid), int(uid))
    dumpable()  # what a change of uid takes away: /dev/stdin and /proc/self are the program's own, as after exec
    posix.chdir(cwd)
    for word in words[int(count) :]:
        name, _, value = word.encode("utf-8", "surrogateescape").partition(b"=")
        posix.environ[name] = value
        posix.putenv(name, value)
    for name in ("_socket", "_ctypes", "gc"):
        KEPT.append(sys.modules.pop(name))
    line.close()
    return words[: int(count)]


if __name__ == "__main__":
    sys.path.append(sys.argv[0].rpartition("/")[0])
    import python  # type: ignore[import-not-found]

    sys.path.pop()
    sys.modules["__main__"] = sys.modules.pop("python")  # as if it had been started itself
    python.main(*stand_ready(sys.argv[1]))
