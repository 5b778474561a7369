"""The E2B sandbox: the real SDK against a server on loopback whose machines really run what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop.doctor import checks
from agentloop.errors import UserError
from agentloop.sandbox import e2b, open_sandbox
from agentloop.sandbox.compiled import COMPILED
from agentloop.sandbox.conformance import answer, call, job, stdio
from agentloop.sandbox.e2b import E2BSandbox
from agentloop.testing import language_cases, sandbox_cases, why_not, wrong
from agentloop.types import Limits
from tests.sandbox.e2b_server import KEY, Server, serving
from tests.sandbox.service.conftest import HELLO, SLOW, says_one, until


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
