"""Answers of a provider that stop or break a run long after they came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import ModelError
from agentloop.models.faults import RetryPolicy
from agentloop.models.limiter import Limiter
from agentloop.models.provider import ProviderModel
from agentloop.types import Request
from tests.models.fake_server import FakeServer, error, good

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POLICY = RetryPolicy(tries=2, seconds=100.0, first=0.01, longest=0.02)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as fake:
        yield fake


@pytest.fixture
async def model(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProviderModel]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-key-for-nobody")
    one = ProviderModel("openai/some-name", api_base=server.base, limiter=Limiter(4), timeout=5.0, policy=POLICY)
    await one.start()
    server.say(good())
    yield one
    await one.close()


async def test_a_daily_quota_does_not_stop_the_run_for_a_day_in_silence(
    server: FakeServer, model: ProviderModel
) -> None:
    server.say(error(429, "come back tomorrow", {"Retry-After": "86400"}), good("next"))
    with pytest.raises(ModelError, match="come back tomorrow"):
        await model.generate(Request(({"role": "user", "content": "first"},), {}, 1))
    async with asyncio.timeout(5):
        assert (await model.generate(Request(({"role": "user", "content": "second"},), {}, 1))).text == "next"


async def test_a_half_of_a_surrogate_pair_can_be_sent_back(server: FakeServer, model: ProviderModel) -> None:
    server.say(good("fine"))
    said = "half \ud83d, whole \ud83d\ude00, \U0001f600, ä"
    await model.generate(Request(({"role": "assistant", "content": said},), {}, 1))
    assert server.calls[-1]["messages"][0]["content"] == "half \ufffd, whole \U0001f600, \U0001f600, ä"


async def test_a_count_below_nothing_gives_no_tokens_back(server: FakeServer, model: ProviderModel) -> None:
    server.say(good("fine", usage={"prompt_tokens": -900, "completion_tokens": 7, "total_tokens": -893}))
    reply = await model.generate(Request(({"role": "user", "content": "hi"},), {}, 1))
    assert (reply.prompt_tokens, reply.completion_tokens) == (0, 7)
