"""Lanes and pools of the local sandbox: lost lanes, unclean lanes, jobs alone, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop.errors import SandboxError, UserError
from agentloop.sandbox import landlock
from agentloop.sandbox.conformance import answer, call, job, stdio
from agentloop.sandbox.local import LocalSandbox, available
from agentloop.types import Job, Limits
from tests.sandbox.conftest import ROOT
from tests.sandbox.procs import below, lanes, wait_for, wait_gone

PARTS = available()
namespaces = pytest.mark.skipif(bool(PARTS["namespaces"]), reason=f"namespaces: {PARTS['namespaces']}")
LEVELS = [
    pytest.param("namespaces", marks=namespaces),
    pytest.param("reduced", marks=pytest.mark.skipif(bool(PARTS["reduced"]), reason=f"reduced: {PARTS['reduced']}")),
]
HELLO = job("print(1)", stdio())
LONG = Job("python", "import time\ndef f(): time.sleep(100)", (call("f"),), Limits(wall=60.0))
CLOCK = "import time\nt = time.monotonic()\ntime.sleep(0.3)\nprint(t, time.monotonic())"


@pytest.fixture
async def sandbox() -> AsyncIterator[LocalSandbox]:
    sandbox = LocalSandbox(lanes=2)
    yield sandbox
    await sandbox.close()


def running(word: str) -> bool:
    """Whether a program of some lane of ours runs a driver in this mode."""
    return any("python.pyc " + word in line for line in below(os.getpid()).values())


async def until(word: str) -> None:
    assert await asyncio.to_thread(wait_for, lambda: running(word))


def mounts() -> set[str]:
    """What is mounted on this machine, but for the containers of a Docker engine, which come and go."""
    return {line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "docker" not in line}


@pytest.mark.parametrize("level", LEVELS)
async def test_close_leaves_nothing(level: str) -> None:
    before = mounts()
    sandbox = LocalSandbox(lanes=2, reduced=level == "reduced")
    await sandbox.start()
    await asyncio.gather(*(sandbox.execute(HELLO) for _ in range(4)))
    tree = below(os.getpid())
    assert lanes()
    await sandbox.close()
    await sandbox.close()
    assert wait_gone(list(tree)) == []
    assert mounts() <= before
    assert not [p for p in Path(tempfile.gettempdir()).glob(landlock.PREFIX + "*") if p.stat().st_uid == os.getuid()]
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.execute(HELLO)


@pytest.mark.parametrize("level", LEVELS)
def test_killed_owner_leaves_nothing(level: str, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o011) if folder.owner() == tmp_path.owner() else None
    script = [sys.executable, str(ROOT / "tests/sandbox/hold.py"), level]
    with subprocess.Popen(script, env=env, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "started\n"
        assert wait_for(lambda: sum("python.pyc call" in line for line in below(owner.pid).values()) >= 2)
        tree = below(owner.pid)
        owner.kill()
    assert wait_gone(list(tree)) == []
    assert list(tmp_path.iterdir()) == []


@namespaces
async def test_lost_lane_is_tried_again(sandbox: LocalSandbox) -> None:
    task = asyncio.ensure_future(sandbox.execute(replace(LONG, limits=Limits(wall=1.5))))
    await until("call")
    (first,) = lanes()
    os.kill(first, signal.SIGKILL)
    execution = await task
    assert execution.tests[0]["limit"] == "wall"
    assert lanes()
    assert first not in lanes()


@namespaces
async def test_lane_lost_twice_is_a_fault(sandbox: LocalSandbox) -> None:
    task = asyncio.ensure_future(sandbox.execute(LONG))
    for _ in range(2):
        await until("call")
        (lost,) = lanes()
        tree = below(lost)
        os.kill(lost, signal.SIGKILL)
        # Its judge and the program end with it, else the next round would find them in place of the next lane's.
        assert await asyncio.to_thread(wait_gone, [lost, *tree]) == []
    with pytest.raises(SandboxError, match="lane"):
        await task
    assert (await sandbox.execute(HELLO)).tests[0]["stdout"] == "1\n"


@namespaces
async def test_unclean_lane_is_replaced(sandbox: LocalSandbox) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: an ordinary user's programs have their own IPC namespace each")
    await sandbox.execute(HELLO)
    before = lanes()
    leave = "import ctypes\ndef f(): return ctypes.CDLL(None).shmget(1, 4096, 0o1600) >= 0"
    assert answer((await sandbox.execute(job(leave))).tests[0]) == {"value": True}
    again = await sandbox.execute(job(leave.replace("0o1600", "0")))
    assert answer(again.tests[0]) == {"value": False}  # there is no such segment any more
    assert not before & lanes()


@namespaces
async def test_alone_means_alone(sandbox: LocalSandbox) -> None:
    jobs = [job(CLOCK, stdio())] * 4
    jobs[1] = replace(jobs[1], alone=True)
    jobs[3] = replace(jobs[3], pool="grade")
    done = await asyncio.gather(*map(sandbox.execute, jobs))
    times = [tuple(map(float, execution.tests[0]["stdout"].split())) for execution in done]
    begin, end = times.pop(1)
    assert all(other_end <= begin or end <= other_begin for other_begin, other_end in times)


@namespaces
async def test_lanes_run_at_once(sandbox: LocalSandbox) -> None:
    await asyncio.gather(sandbox.execute(HELLO), sandbox.execute(HELLO))
    slow = job(CLOCK.replace("0.3", "2"), stdio())
    done = await asyncio.gather(sandbox.execute(slow), sandbox.execute(slow))
    (a, b), (c, d) = (tuple(map(float, execution.tests[0]["stdout"].split())) for execution in done)
    assert a < d
    assert c < b


@namespaces
async def test_pools_share_no_lane(sandbox: LocalSandbox) -> None:
    await sandbox.execute(HELLO)
    loop = lanes()
    await sandbox.execute(replace(HELLO, pool="grade"))
    assert len(lanes()) == 2
    assert loop < lanes()


@namespaces
async def test_cancelled_job_takes_its_lane_along(sandbox: LocalSandbox) -> None:
    task = asyncio.ensure_future(sandbox.execute(LONG))
    await until("call")
    tree = below(os.getpid())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wait_gone(list(tree)) == []
    assert (await sandbox.execute(HELLO)).tests[0]["stdout"] == "1\n"


@namespaces
async def test_a_job_may_be_cancelled_at_every_moment_of_its_lanes_start() -> None:
    for turns in range(1, 40):  # of the event loop
        sandbox = LocalSandbox(lanes=1)
        task = asyncio.ensure_future(sandbox.execute(HELLO))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await sandbox.close()
    assert not lanes()


@namespaces
async def test_unknown_language(sandbox: LocalSandbox) -> None:
    with pytest.raises(UserError, match="unknown language 'cobol'"):
        await sandbox.execute(Job("cobol", "", (stdio(),), Limits()))


def test_where_namespaces_are_forbidden(tmp_path: Path) -> None:
    if PARTS["namespaces"] or os.geteuid() != 0:
        pytest.skip("needs root and namespaces, to forbid them")
    script = tmp_path / "forbid.py"
    script.write_text(
        "import ctypes, asyncio\n"
        "assert ctypes.CDLL(None).unshare(0x10000000) == 0\n"
        "for name, text in (('setgroups', 'deny'), ('uid_map', '0 0 1'), ('gid_map', '0 0 1')):\n"
        "    open('/proc/self/' + name, 'w').write(text)\n"
        "open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
        "open('/proc/sys/user/max_mnt_namespaces', 'w').write('0')\n"
        "from agentloop.sandbox.local import LocalSandbox\n"
        "asyncio.run(LocalSandbox(lanes=1).start())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("agentloop.errors.UserError: the sandbox local does not work here")
    assert last.endswith("as root: sysctl user.max_user_namespaces=15000")


def test_sweep_removes_what_a_crash_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alive = landlock.lane_directory()
    dead = tmp_path / (landlock.PREFIX + "dead")
    (dead / "run").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    assert landlock.sweep() == [str(dead)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([Path(alive).name, "other"])
