"""The journal: a hit is read, a miss is called once, faults are nobody's answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentloop.budget import Ceilings
from agentloop.errors import Cancelled, JournalMiss, ModelError
from agentloop.hashing import derive_seed
from agentloop.journal import Asked, Journal, execution_key
from agentloop.store import Store
from agentloop.types import Job, Limits, Reply, Request, Test

REQUEST = Request(({"role": "user", "content": "hello"},), {"temperature": 0.0, "max_tokens": 10}, 5)
ASKED = Asked("w:p/1", "identity", 0, "0")


@dataclass
class Counting:
    """A model that waits until it is let go and counts its calls: a minimal implementation of the public protocol."""

    go: asyncio.Event
    calls: int = 0
    name: str = "counting"
    concurrency: int = 8
    fail: list[Exception] = field(default_factory=list)

    async def start(self) -> dict[str, Any]:
        return {}

    async def generate(self, request: Request) -> Reply:
        self.calls += 1
        await self.go.wait()
        if self.fail:
            raise self.fail.pop()
        return Reply(f"answer {self.calls}", "stop", 7, 3, 0.1)

    async def close(self) -> None:
        return None


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = Store.open(tmp_path / "run")
    yield opened
    opened.close()


async def test_two_askers_of_one_missing_key_wait_for_one_call(store: Store) -> None:
    model = Counting(asyncio.Event())
    journal = Journal(sink=store)
    asks = [asyncio.create_task(journal.reply(ASKED, REQUEST, model)) for _ in range(5)]
    await asyncio.sleep(0)
    model.go.set()
    answers = await asyncio.gather(*asks)
    assert model.calls == 1
    assert {reply.text for _, reply in answers} == {"answer 1"}
    assert (await journal.reply(ASKED, REQUEST, None))[1].text == "answer 1"


@pytest.mark.parametrize("field_", ["problem", "identity", "sample", "occurrence", "messages", "params", "seed"])
def test_everything_that_makes_a_draw_another_one_is_in_its_key(field_: str) -> None:
    changes: dict[str, Any] = {"problem": "w:p/2", "identity": "x", "sample": 1, "occurrence": "1", "seed": 6}
    if field_ in ("messages", "params", "seed"):
        value = {"messages": ({"role": "user", "content": "other"},), "params": {"temperature": 0.1}, "seed": 6}[field_]
        changed = ASKED.key(Request(**{**_fields(REQUEST), field_: value}))
    else:
        changed = Asked(**{**_fields(ASKED), field_: changes[field_]}).key(REQUEST)
    assert changed != ASKED.key(REQUEST)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _job(expected: int, argument: int = 1, program: str = "p", cpu: float = 1.0) -> Job:
    test = Test("0", "call", {"function": "f", "args": [argument], "kwargs": {}}, {"value": expected}, "equal", "")
    return Job("python", program, (test,), Limits(cpu=cpu))


def test_an_execution_key_has_inputs_and_no_expected_value() -> None:
    base = execution_key(_job(1), "env", 0)
    assert execution_key(_job(2), "env", 0) == base
    others = [_job(1, argument=2), _job(1, program="q"), _job(1, cpu=2.0)]
    keys = {execution_key(job, "env", 0) for job in others} | {execution_key(_job(1), "other", 0)}
    keys |= {execution_key(_job(1), "env", 1)}
    assert base not in keys
    assert len(keys) == 5


async def test_a_fault_is_recorded_by_nobody_and_asked_again(store: Store) -> None:
    model = Counting(asyncio.Event(), fail=[ModelError("rate limit")])
    model.go.set()
    journal = Journal(sink=store)
    with pytest.raises(ModelError):
        await journal.reply(ASKED, REQUEST, model)
    assert (await journal.reply(ASKED, REQUEST, model))[1].text == "answer 2"


async def test_who_waited_for_a_cancelled_call_gets_a_fault_and_can_ask_again(store: Store) -> None:
    model = Counting(asyncio.Event())
    journal = Journal(sink=store)
    first = asyncio.create_task(journal.reply(ASKED, REQUEST, model))
    second = asyncio.create_task(journal.reply(ASKED, REQUEST, model))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(Cancelled):
        await second
    model.go.set()
    assert (await journal.reply(ASKED, REQUEST, model))[1].text == "answer 2"


async def test_a_call_is_noted_as_begun_when_the_model_takes_it_not_when_it_waits_for_its_turn(store: Store) -> None:
    model = Counting(asyncio.Event(), concurrency=1)
    journal = Journal(sink=store)
    asks = [asyncio.create_task(journal.reply(Asked("w:p", "i", n, "0"), REQUEST, model)) for n in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert store.db.execute("SELECT count(*) FROM calls").fetchone() == (1,)
    model.go.set()
    await asyncio.gather(*asks)
    assert store.db.execute("SELECT count(*) FROM calls").fetchone() == (3,)


async def test_a_miss_in_a_replay_is_an_error(store: Store) -> None:
    with pytest.raises(JournalMiss):
        await Journal(sink=store).reply(ASKED, REQUEST, None)


async def test_ceilings_are_reserved_before_a_call_so_that_open_calls_cannot_overshoot(store: Store) -> None:
    # A request may take 5 / 3 prompt tokens and 10 more: two fit under 25, the third would not.
    model = Counting(asyncio.Event())
    ceilings = Ceilings(max_tokens=25)
    journal = Journal(sink=store, ceilings=ceilings)
    asks = [asyncio.create_task(journal.reply(Asked("w:p", "i", sample, "0"), REQUEST, model)) for sample in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(Cancelled, match="--max-tokens 25"):
        await asks[2]
    model.go.set()
    await asyncio.gather(*asks[:2])
    assert ceilings.tokens == 20  # what the two really took: 7 + 3 each


def test_a_price_is_reserved_and_settled() -> None:
    ceilings = Ceilings(max_cost=1.0)
    reserved = ceilings.reserve(REQUEST, (0.0, 0.05))
    assert ceilings.cost == pytest.approx(0.5)
    with pytest.raises(Cancelled, match="--max-cost"):
        ceilings.reserve(REQUEST, (0.0, 0.06))
    ceilings.settle(reserved, Reply("", "stop", 1, 1, 0.0, cost=0.05))
    assert ceilings.cost == pytest.approx(0.05)


def test_seeds_are_the_same_everywhere_and_fit_every_provider() -> None:
    assert derive_seed(0, "humaneval:HumanEval/0", 0, "0") == derive_seed(0, "humaneval:HumanEval/0", 0, "0")
    seeds = {derive_seed(0, "p", sample, str(occurrence)) for sample in range(10) for occurrence in range(10)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)
