"""The E2B sandbox: the real SDK against a server on loopback whose machines really run what they are told."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop.doctor import checks, clean
from agentloop.errors import AgentloopError, SandboxError, UserError
from agentloop.sandbox import e2b, e2b_service, engine, lane, open_sandbox
from agentloop.sandbox.compiled import COMPILED
from agentloop.sandbox.conformance import answer, call, job, stdio
from agentloop.sandbox.e2b import E2BSandbox
from agentloop.testing import language_cases, sandbox_cases, why_not, wrong
from agentloop.types import Job, Limits
from tests.sandbox.e2b_server import KEY, Answer, Server, serving
from tests.sandbox.procs import below

HELLO = job("print(1)", stdio())
SLOW = Job("python", "import time\ndef f(): time.sleep(2); return 5", (call("f"),), Limits(wall=60.0))


@pytest.fixture
async def server(need: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    need("e2b-machines")
    monkeypatch.setattr(e2b, "FIRST_WAIT", 0.01)
    async with serving(tmp_path, monkeypatch) as server:
        yield server
    assert not [line for line in below(os.getpid()).values() if "e2b_machine" in line]


@pytest.fixture
async def sandbox(server: Server) -> AsyncIterator[E2BSandbox]:
    sandbox = E2BSandbox(lanes=1)
    await sandbox.start()
    yield sandbox
    await sandbox.close()
    assert server.machines == {}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def says_one(sandbox: E2BSandbox) -> bool:
    return (await sandbox.execute(HELLO)).tests[0]["stdout"] == "1\n"


# -- the same verdicts as everywhere -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conformance(need: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was wrong in each conformance case ('' for nothing), all run on one sandbox with two lanes."""
    need("e2b-machines")

    async def run() -> dict[str, str]:
        sandbox, missing = E2BSandbox(lanes=2), dict[str, str]()
        with pytest.MonkeyPatch.context() as patch:
            async with serving(tmp_path_factory.mktemp("e2b"), patch) as server:
                server.chunk = 1021  # no record comes whole
                try:
                    await sandbox.start()
                    cases = sandbox_cases()
                    for language in COMPILED:
                        if why := await why_not(sandbox, language):
                            missing |= {case[0]: f"skip: {why}" for case in language_cases(language)[:2]}
                        else:
                            cases += language_cases(language)[:2]
                    found = await wrong(sandbox, cases)
                finally:
                    await sandbox.close()
                assert server.machines == {}
        return missing | found

    return asyncio.run(run())


CASES = [*sandbox_cases(), *(case for language in COMPILED for case in language_cases(language)[:2])]


@pytest.mark.parametrize("case", [case[0] for case in CASES])
def test_case(case: str, conformance: dict[str, str]) -> None:
    if conformance[case].startswith("skip: "):
        pytest.skip(conformance[case])
    assert conformance[case] == ""


# -- what is asked of the service --------------------------------------------------------------------------------------


async def test_a_started_sandbox_tells_its_environment_and_leaves_nothing(server: Server) -> None:
    environments = []
    for _ in range(2):
        sandbox = E2BSandbox(lanes=2)
        try:
            environments.append(await sandbox.start())
            assert all(await asyncio.gather(says_one(sandbox), says_one(sandbox)))
            assert len(server.machines) == 2
            assert await says_one_in_grade(sandbox)
            assert len(server.machines) == 3
        finally:
            await sandbox.close()
        assert server.machines == {}
        await sandbox.close()
    assert environments[0] == environments[1]
    assert environments[0]["backend"] == "e2b"
    assert "memory sampled" in environments[0]["isolation"]
    assert environments[0]["host"] == "e2b, 2 CPUs, 4096 MiB"


async def says_one_in_grade(sandbox: E2BSandbox) -> bool:
    return (await sandbox.execute(replace(HELLO, pool="grade"))).tests[0]["stdout"] == "1\n"


async def test_machines_are_made_without_a_way_to_the_internet(server: Server, sandbox: E2BSandbox) -> None:
    (machine,) = server.machines.values()
    assert machine.asked["allow_internet_access"] is False
    assert machine.asked["envVars"] == {}


async def test_the_key_is_nowhere_but_in_the_header(server: Server, sandbox: E2BSandbox) -> None:
    program = """
import glob, os
def f(key):
    texts = [str(dict(os.environ)).encode()]
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            texts.append(open(path, "rb").read())
        except OSError:
            pass
    return any(key.encode() in text or b"E2B" in text for text in texts)
"""
    run = await sandbox.execute(job(program, call("f", KEY[4:])))
    assert answer(run.tests[0]) == {"value": False}
    assert not [name for name, body in server.seen if KEY in body]


async def test_a_big_job_comes_in_pieces_and_whole(server: Server, sandbox: E2BSandbox) -> None:
    text = "".join(f"{number}\n" for number in range(400_000))
    before = server.count("SendInput")
    run = await sandbox.execute(job("print(sum(map(int, open(0))))", stdio(text)))
    assert run.tests[0]["stdout"] == f"{sum(range(400_000))}\n"
    assert server.count("SendInput") - before >= len(text) // e2b.CHUNK


async def test_more_memory_than_a_machine_has_is_refused(sandbox: E2BSandbox) -> None:
    with pytest.raises(UserError, match=r"in python may take 4000 MiB.*'base' has 4096 MiB.*smaller limits.memory"):
        await sandbox.execute(replace(HELLO, limits=Limits(memory=4000 * 2**20)))


# -- lifetimes and losses ----------------------------------------------------------------------------------------------


async def test_a_machine_in_use_lives_on(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1, timeout=3)
    longer = replace(SLOW, program=SLOW.program.replace("2", "3.5"))
    try:
        await sandbox.start()
        assert answer((await sandbox.execute(longer)).tests[0]) == {"value": 5}
        assert server.count("create") == 1
        assert server.count("timeout") >= 2
    finally:
        await sandbox.close()


async def test_a_machine_that_ended_unused_costs_no_job(server: Server, sandbox: E2BSandbox) -> None:
    (machine,), (idle,) = server.machines.values(), sandbox._pool._idle["loop"]
    server.end(machine)
    await until(idle.writer.is_closing)
    before = server.count("SendInput")
    assert await says_one(sandbox)
    assert server.count("SendInput") == before + 1
    assert server.count("create") == 2


async def test_the_end_is_not_put_off_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2b, "LIFETIME", 0.0)
    sandbox = E2BSandbox(lanes=1, timeout=8)
    try:
        await sandbox.start()
        await until(lambda: not server.machines)
        assert server.count("timeout") == server.count("kill") == 0
    finally:
        await sandbox.close()


async def test_an_old_machine_gets_no_new_job(server: Server, sandbox: E2BSandbox) -> None:
    (first,) = server.machines
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(e2b, "OLD", 0.0)
        assert await says_one(sandbox)
    assert server.ended == [first]
    (second,) = server.machines
    assert await says_one(sandbox)
    assert list(server.machines) == [second]


async def test_a_machine_lost_in_the_middle_is_tried_once_more(server: Server, sandbox: E2BSandbox) -> None:
    (first,) = server.machines.values()
    running = asyncio.ensure_future(sandbox.execute(SLOW))
    await sent(server)
    server.end(first)
    assert answer((await running).tests[0]) == {"value": 5}
    assert server.count("create") == 2


async def test_a_job_that_loses_two_machines_is_a_fault(server: Server, sandbox: E2BSandbox) -> None:
    running = asyncio.ensure_future(sandbox.execute(SLOW))
    for _ in range(2):
        await sent(server)
        (machine,) = server.machines.values()
        server.end(machine)
    with pytest.raises(SandboxError, match="stream broke"):
        await running
    assert await says_one(sandbox)


async def sent(server: Server) -> None:
    """Wait until a job is on its way to a machine."""
    before = server.count("SendInput")
    await until(lambda: server.count("SendInput") > before)


async def test_a_machine_that_the_service_does_not_know_any_more_is_lost(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1, timeout=3)
    try:
        await sandbox.start()
        running = asyncio.ensure_future(sandbox.execute(SLOW))
        await sent(server)
        server.trouble["timeout"].append(Answer(404, {"code": 404, "message": "gone"}))
        assert answer((await running).tests[0]) == {"value": 5}
        assert server.count("create") == 2
    finally:
        await sandbox.close()


async def test_a_machine_that_hangs_is_given_up(
    server: Server, sandbox: E2BSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "GRACE", 1.0)
    (first,) = server.machines.values()
    running = asyncio.ensure_future(sandbox.execute(replace(HELLO, limits=Limits(wall=1.0, cpu=1.0))))
    server.freeze(first)
    assert (await running).tests[0]["stdout"] == "1\n"
    assert first.id in server.ended


@pytest.mark.parametrize("name", ["SendInput", "Start", "files", "info"])
async def test_trouble_of_one_machine_costs_another_try(name: str, server: Server) -> None:
    sandbox = E2BSandbox(lanes=1)
    try:
        if name == "SendInput":
            await sandbox.start()
        server.trouble[name].append(Answer(500, {"code": 500, "message": "disk broken"}))
        if name != "SendInput":
            with pytest.raises(SandboxError, match="disk broken"):
                await sandbox.start()
            assert server.machines == {}
            await sandbox.start()
        assert await says_one(sandbox)
    finally:
        await sandbox.close()


# -- the service says no -----------------------------------------------------------------------------------------------


async def refused(error: type[AgentloopError], match: str, template: str = "base") -> None:
    sandbox = E2BSandbox(lanes=1, template=template)
    try:
        with pytest.raises(error, match=match) as caught:
            await sandbox.start()
        assert "\n" not in str(caught.value)
        assert KEY not in str(caught.value)
    finally:
        await sandbox.close()


async def test_what_the_user_can_mend(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await refused(UserError, "E2B does not start a machine of template 'none': 404: template 'none' not found", "none")
    server.trouble["create"].append(Answer(400, {"code": 400, "message": f"Timeout cannot be so great, {KEY}"}))
    await refused(UserError, r"400: Timeout cannot be so great, \*\*\*")
    monkeypatch.setenv("E2B_API_KEY", "another")
    await refused(UserError, "E2B refuses the key in E2B_API_KEY: 401")
    monkeypatch.delenv("E2B_API_KEY")
    await refused(UserError, "key of an E2B account in E2B_API_KEY")
    monkeypatch.setenv("E2B_DEBUG", "true")
    monkeypatch.setenv("E2B_API_KEY", KEY)
    await refused(UserError, "E2B_DEBUG is set")
    assert server.machines == {}


async def test_no_test_can_reach_the_real_service(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ["E2B_API_URL"].startswith("http://127.0.0.1:")
    monkeypatch.setenv("E2B_API_KEY", KEY)
    for name in ("E2B_API_URL", "E2B_SANDBOX_URL"):
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(name)
            await refused(UserError, r"calls to the outside are off \(AGENTLOOP_NO_OUTSIDE=1\)")


async def test_a_rate_limit_is_waited_out_as_long_as_it_asks(server: Server) -> None:
    server.trouble["create"].append(Answer(429, {"code": 429, "message": "slow down"}, {"Retry-After": "1"}))
    sandbox = E2BSandbox(lanes=1)
    began = time.monotonic()
    try:
        await sandbox.start()
        assert time.monotonic() - began > 1
        assert server.count("create") == 2
        assert await says_one(sandbox)
    finally:
        await sandbox.close()


async def test_a_rate_limit_that_asks_too_long_is_told_at_once(server: Server) -> None:
    server.trouble["create"].append(Answer(429, {"code": 429, "message": "20 at once"}, {"Retry-After": "3600"}))
    await refused(SandboxError, "e2b: cannot start a machine of template 'base': 429.*20 at once")
    assert server.count("create") == 1


async def test_errors_of_the_service_are_tried_again_and_bounded(server: Server) -> None:
    broken = Answer(500, {"code": 500, "message": "broken"})
    server.trouble["create"] += [broken, Answer(0), Answer(503, {"code": 503, "message": "busy"}, {"Retry-After": "0"})]
    sandbox = E2BSandbox(lanes=1)
    try:
        await sandbox.start()
    finally:
        await sandbox.close()
    assert server.count("create") == 4
    assert len({key for name, key in server.keys if name == "create"}) == 1  # no try can start a second machine
    server.trouble["create"] += [broken] * 9
    await refused(SandboxError, "cannot start a machine of template 'base': 500: broken")
    assert server.count("create") == 4 + e2b.CREATE_TRIES


async def test_a_service_that_never_answers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2b_service, "TIMEOUT", 0.3)
    monkeypatch.setattr(e2b, "CREATE_SECONDS", 0.3)
    server.trouble["create"] += [Answer(-1)] * 9
    await refused(SandboxError, "cannot start a machine of template 'base': no answer")
    server.trouble["list"] += [Answer(-1)] * 9
    await refused(SandboxError, "cannot list the machines: no answer")


async def test_a_service_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", KEY)
    await refused(SandboxError, "e2b: cannot list the machines: ")


async def test_a_template_that_cannot_run_the_judge(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2b, "FILES", ("judge.py",))
    await refused(SandboxError, r"exit(ed)?.* code 2.*can't open file '/opt/agentloop/namespaces.py'")


# -- nothing is left ---------------------------------------------------------------------------------------------------


async def test_what_could_not_be_ended_is_ended_at_the_close(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1)
    await sandbox.start()
    server.trouble["kill"].append(Answer(500, {"code": 500, "message": "later"}))
    await sandbox.close()
    assert server.machines == {}
    assert server.count("kill") == 2


async def test_a_cancelled_start_leaves_no_machine(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1)
    server.go.clear()
    starting = asyncio.ensure_future(sandbox.start())
    await until(lambda: server.machines)
    starting.cancel()
    server.go.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert server.machines == {}
    await sandbox.close()


async def test_a_close_before_a_machine_is_there_leaves_none(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1)
    server.go.clear()
    starting = asyncio.ensure_future(sandbox.start())
    await until(lambda: server.machines)
    await sandbox.close()
    server.go.set()
    with pytest.raises(SandboxError, match="closed"):
        await starting
    assert server.machines == {}


async def test_a_cancelled_start_waits_for_no_service_that_hangs(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e2b, "PATIENCE", 0.1)
    sandbox = E2BSandbox(lanes=1)
    server.go.clear()
    starting = asyncio.ensure_future(sandbox.start())
    await until(lambda: server.machines)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await sandbox.close()
    assert server.machines == {}


async def test_a_cancelled_job_takes_its_machine_along(server: Server, sandbox: E2BSandbox) -> None:
    (first,) = server.machines
    running = asyncio.ensure_future(sandbox.execute(SLOW))
    await sent(server)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert server.ended == [first]
    assert await says_one(sandbox)


OWNER = """
import asyncio, sys
from agentloop.sandbox.e2b import E2BSandbox

async def main():
    sandbox = E2BSandbox(lanes=1)
    await sandbox.start()
    print("started", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


async def test_machines_of_a_killed_owner_are_removed_and_no_others(server: Server, sandbox: E2BSandbox) -> None:
    (mine,) = server.machines
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"started\n"
    (left,) = server.machines.keys() - {mine}
    owner.kill()
    await owner.wait()
    dead = server.machines[left].asked["metadata"]
    pid, _, started = dead[engine.OWNER].split(":")
    for labels in ({engine.HOST: "another"}, {engine.OWNER: f"{pid}:anotherboot:{started}"}, {engine.LANE: "no"}):
        await e2b.E2BSandbox._create(others := E2BSandbox(lanes=1), "loop")
        server.machines[f"machine{server.count('create')}"].asked["metadata"] = {**dead, **labels}
        await others.close()
    cleaned = await asyncio.to_thread(lambda: [line for line in clean() if "e2b" in line])
    assert cleaned == [f"removed e2b machine {left}"]
    assert len(server.machines) == 4
    for machine in [one for name, one in server.machines.items() if name != mine]:
        server.end(machine)


async def test_doctor_tells(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def line() -> tuple[bool, str]:
        check = next(check for check in checks() if check.name == "e2b")
        return check.ok, check.text

    ok, text = await asyncio.to_thread(line)
    assert ok, text
    assert server.seen == []  # nothing is asked
    monkeypatch.setenv("E2B_API_URL", "http://127.0.0.1:9")
    assert await asyncio.to_thread(line) == (False, "http://127.0.0.1:9 does not answer")
    monkeypatch.delenv("E2B_API_KEY")
    ok, text = await asyncio.to_thread(line)
    assert "E2B_API_KEY" in text


def test_a_profile_sets_template_lifetime_and_domain(tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text('backend = "e2b"\ntemplate = "big"\ntimeout = 600\ndomain = "e2b.example.com"\n')
    sandbox = open_sandbox(str(profile), lanes=3)
    assert isinstance(sandbox, E2BSandbox)
    assert (sandbox.template, sandbox.timeout, sandbox.domain, sandbox.lanes) == ("big", 600, "e2b.example.com", 3)
