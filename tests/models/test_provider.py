"""Providers through LiteLLM against a real HTTP server on loopback: replies, faults, retries, secrets."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import ModelError, UserError
from agentloop.models import open_model
from agentloop.models.faults import RetryPolicy, classify, public_base, retry_after, scrub
from agentloop.models.limiter import Limiter
from agentloop.models.provider import ProviderModel
from agentloop.types import Request
from tests.models.fake_server import Answer, FakeServer, error, good

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "sk-this-is-a-secret-key"
QUESTION = Request(
    ({"role": "user", "content": "hi"},), {"temperature": 0.5, "max_tokens": 50, "stop": ["END"]}, 2**31 + 5
)
QUICK = RetryPolicy(tries=4, seconds=100.0, first=0.01, longest=0.04)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as fake:
        yield fake


@pytest.fixture
async def model(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProviderModel]:
    """A started model of that server, which has forgotten the check."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    one = ProviderModel("openai/some-name", api_base=server.base, limiter=Limiter(4), timeout=5.0, policy=QUICK)
    await one.start()
    server.say(good())
    yield one
    await one.close()
    await one.close()


async def test_a_reply_has_what_the_provider_said(server: FakeServer, model: ProviderModel) -> None:
    server.say(good("text", "length"))
    reply = await model.generate(QUESTION)
    assert (reply.text, reply.finish_reason, reply.served_model) == ("text", "length", "served-name")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens, reply.cost) == (10, 3, 4, None)
    assert 0 < reply.seconds < 5
    assert server.calls == [
        {
            "model": "some-name",
            "messages": [{"role": "user", "content": "hi"}],
            "temperature": 0.5,
            "max_tokens": 50,
            "stop": ["END"],
            "seed": 5,
        }
    ]


async def test_identity_names_the_server_and_no_secret(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = open_model("openai/some-name", api_base=f"{server.base}/")
    try:
        identity = await model.start()
    finally:
        await model.close()
    assert identity.pop("litellm")
    assert identity == {"provider": "openai", "base": server.base, "name": "some-name", "dropped": []}
    assert [call["max_tokens"] for call in server.calls] == [16]


async def test_a_base_from_the_environment_is_the_identitys_base(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    model = open_model("openai/some-name")
    try:
        assert (await model.start())["base"] == server.base
        assert server.keys == ["bearer none"]
    finally:
        await model.close()


async def test_a_known_price_makes_a_cost(server: FakeServer) -> None:
    model = ProviderModel("openai/gpt-4o", api_base=server.base, limiter=Limiter(1))
    try:
        await model.start()
        server.say(good(model="gpt-4o"))
        reply = await model.generate(QUESTION)
    finally:
        await model.close()
    assert model.prices is not None
    assert reply.cost is not None
    # Of 10 prompt tokens 4 came from the provider's cache, for which it asks less.
    assert 6 * model.prices[0] + 3 * model.prices[1] < reply.cost < 10 * model.prices[0] + 3 * model.prices[1]


RATE = error(429, "slow down", {"Retry-After": "0.02"})


@pytest.mark.parametrize(
    "bad",
    [
        RATE,
        error(500, "boom"),
        Answer(502, b"<html>"),
        error(503, "busy", {"Retry-After": "0"}),
        error(408, "too slow"),
        Answer(200, b"{not json"),
        Answer(200, b"[]"),
        Answer(200, b"{}"),
        Answer(200, b"<html>hello</html>"),
        Answer(200, {"id": "x", "choices": []}),
    ],
    ids=lambda answer: f"{answer.status} {str(answer.body)[:20]}",
)
async def test_what_may_pass_is_tried_again(server: FakeServer, model: ProviderModel, bad: Answer) -> None:
    server.say(bad, bad, good("at last"))
    assert (await model.generate(QUESTION)).text == "at last"
    assert len(server.calls) == 3
    server.say(bad)
    with pytest.raises(ModelError, match=r"\(4 tries in \d+ s\)") as caught:
        await model.generate(QUESTION)
    assert caught.value.retryable
    assert len(server.calls) == 4


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (
            error(401, f"Incorrect API key provided: {KEY}"),
            "the key was refused (401): Incorrect API key provided: ***",
        ),
        (error(403, "not for you"), "the key was refused (403): not for you"),
        (error(404, "no such model"), "unknown model or address (404): no such model"),
        (error(400, "temperature is wrong"), "request refused (400): temperature is wrong"),
        (error(422, "stop is wrong"), "request refused (422): stop is wrong"),
        (error(413, "too large"), "request refused (413): too large"),
        (error(429, "You exceeded your quota", code="insufficient_quota"), "rate limit: You exceeded your quota"),
        (
            error(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded"),
            "context window exceeded: This model's maximum context length is 10 tokens",
        ),
    ],
)
async def test_what_cannot_pass_is_asked_once(
    server: FakeServer, model: ProviderModel, bad: Answer, words: str
) -> None:
    server.say(bad)
    with pytest.raises(ModelError) as caught:
        await model.generate(QUESTION)
    assert str(caught.value) == f"openai/some-name at {server.base}: {words}"
    assert not caught.value.retryable
    assert caught.value.__cause__ is None
    assert len(server.calls) == 1


async def test_no_answer_in_time_is_tried_again(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = ProviderModel("openai/x", api_base=server.base, limiter=Limiter(1), timeout=0.3, policy=QUICK)
    try:
        await model.start()
        server.say(Answer(hang=True), good("late"))
        assert (await model.generate(QUESTION)).text == "late"
        server.say(Answer(hang=True))
        with pytest.raises(ModelError, match=r"did not answer in 0.3 s \(4 tries in \d+ s\)"):
            await model.generate(QUESTION)
        assert len(server.calls) == 4
    finally:
        await model.close()


async def test_a_wait_longer_than_the_policy_allows_is_not_begun(server: FakeServer, model: ProviderModel) -> None:
    server.say(error(429, "come back tomorrow", {"Retry-After": "86400"}))
    with pytest.raises(ModelError, match="come back tomorrow") as caught:
        await model.generate(QUESTION)
    assert caught.value.retry_after == 86400
    assert len(server.calls) == 1


async def test_a_cancelled_ask_leaves_the_others_alone(server: FakeServer, model: ProviderModel) -> None:
    server.say(Answer(hang=True), good("second"))
    first = asyncio.ensure_future(model.generate(QUESTION))
    while not server.calls:
        await asyncio.sleep(0)
    second = asyncio.ensure_future(model.generate(QUESTION))
    first.cancel()
    assert (await second).text == "second"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_tokens_are_counted_where_the_server_does_not(server: FakeServer, model: ProviderModel) -> None:
    server.say(good("one two three four five", usage=None))
    reply = await model.generate(QUESTION)
    assert reply.completion_tokens == 5
    assert reply.prompt_tokens > 0


async def test_an_empty_reply_is_a_reply(server: FakeServer, model: ProviderModel) -> None:
    server.say(good(None))
    assert (await model.generate(QUESTION)).text == ""


class TestStart:
    async def check(self, server: FakeServer, *answers: Answer) -> None:
        server.say(*answers)
        model = open_model("openai/x", api_base=server.base, params={"temperature": 0.3, "stop": ["a"]})
        try:
            await model.start()
        finally:
            await model.close()

    async def test_the_check_carries_the_runs_parameters(self, server: FakeServer) -> None:
        await self.check(server, good())
        assert {name: server.calls[0].get(name) for name in ("temperature", "stop")} == {
            "temperature": 0.3,
            "stop": None,
        }

    async def test_an_answer_of_nothing_is_refused(self, server: FakeServer) -> None:
        with pytest.raises(UserError, match=f"openai/x at {server.base} answered the check with nothing"):
            await self.check(server, good(""))

    async def test_a_reasoning_model_that_is_cut_short_passes(self, server: FakeServer) -> None:
        await self.check(server, good("", "length"))

    async def test_a_refused_key_is_the_users(self, server: FakeServer) -> None:
        with pytest.raises(UserError, match="the key was refused"):
            await self.check(server, error(401, "who are you"))
        assert len(server.calls) == 1

    async def test_a_dead_server_is_named_soon(self) -> None:
        model = open_model("openai/x", api_base="http://127.0.0.1:9/v1")
        where = r"openai/x at http://127.0.0.1:9/v1: no connection; is the server running.* \(2 tries in"
        with pytest.raises(ModelError, match=where):
            await model.start()
        await model.close()

    @pytest.mark.parametrize(
        ("name", "options", "words"),
        [
            ("openai/gpt-4o", {}, "calls to the outside are off"),
            ("openai/x", {"api_base": "http://example.org/v1"}, "calls to the outside are off"),
            ("openai/x", {"api_base": "http://127.0.0.1:9", "api_key_env": "NOT_SET"}, "NOT_SET is not set"),
            ("nonsense", {"api_base": "http://127.0.0.1:9"}, "unknown model 'nonsense'"),
            (
                "anthropic/claude-3-5-haiku-20241022",
                {"api_base": "http://127.0.0.1:9", "params": {"logprobs": True}},
                r"does not take a parameter of this run: anthropic does not support parameters: \['logprobs'\][^.]*$",
            ),
        ],
    )
    async def test_wrong_options_are_told(
        self, name: str, options: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AGENTLOOP_NO_OUTSIDE", "1")
        model = open_model(name, **options)  # type: ignore[arg-type]
        with pytest.raises((UserError, ModelError), match=words):
            await model.start()
        await model.close()

    async def test_a_missing_key_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        monkeypatch.delenv("AGENTLOOP_NO_OUTSIDE", raising=False)
        with pytest.raises(UserError, match="openai/gpt-4o needs OPENAI_API_KEY in the environment"):
            await open_model("openai/gpt-4o").start()

    def test_a_base_without_scheme_and_wrong_numbers_are_refused(self) -> None:
        with pytest.raises(UserError, match="must start with http"):
            open_model("openai/x", api_base="localhost:8000")
        with pytest.raises(UserError, match="no user or password"):
            open_model("openai/x", api_base="http://me:secret@localhost:8000")
        with pytest.raises(UserError, match="concurrency must be above 0"):
            open_model("openai/x", concurrency=0)


def test_waits_double_with_a_jitter_that_repeats() -> None:
    class State:
        outcome = None

        def __init__(self, attempt_number: int) -> None:
            self.attempt_number = attempt_number

    policy = RetryPolicy(first=1.0, longest=10.0)
    waits = [policy.wait(State(n), 7) for n in range(1, 7)]  # type: ignore[arg-type]
    assert waits == [policy.wait(State(n), 7) for n in range(1, 7)]  # type: ignore[arg-type]
    for wait, full in zip(waits, [1, 2, 4, 8, 10, 10], strict=True):
        assert full / 2 <= wait <= full
    assert waits != [policy.wait(State(n), 8) for n in range(1, 7)]  # type: ignore[arg-type]


class WithHeaders(Exception):
    def __init__(self, **headers: str) -> None:
        self.response = type("Response", (), {"headers": {k.replace("_", "-"): v for k, v in headers.items()}})()


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after(WithHeaders(retry_after="7")) == 7
    assert retry_after(WithHeaders(retry_after_ms="1500", retry_after="2")) == 1.5
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert retry_after(WithHeaders(retry_after=date)) == pytest.approx(100, abs=2)
    assert retry_after(WithHeaders(retry_after="Wed, 21 Oct 2015 07:28:00 GMT")) == 0
    for nothing in (WithHeaders(), WithHeaders(retry_after="soon"), WithHeaders(retry_after="-1"), Exception()):
        assert retry_after(nothing) is None


def test_secrets_do_not_get_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_TOKEN", "correct horse battery")
    text = scrub(f"sent correct horse battery and {KEY} and my-own-words with Bearer abc123", "my-own-words")
    assert text == "sent *** and *** and *** with Bearer ***"
    assert "abc" not in json.dumps(public_base("https://me:abc@host:8/v1/?key=abc"))
    assert public_base("https://me:abc@host:8/v1/?key=abc") == "https://host:8/v1"
    assert str(classify(ValueError(f"litellm.APIError: {KEY}\nmore"), "m", 1)) == "m: ValueError: *** more"
