"""Scripted models: which rule answers, what stays the same whatever the order, and what a wrong file is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import ModelError, UserError
from agentloop.models import open_model
from agentloop.types import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentloop.protocols import Model
    from agentloop.types import Json

    Script = Callable[[str], Model]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Opens a model of a TOML script, or of a JSONL one (its text starts with a brace)."""

    def make(text: str) -> Model:
        path = tmp_path / ("script.jsonl" if text.startswith("{") else "script.toml")
        path.write_text(text, encoding="utf-8")
        return open_model(f"scripted:{path}")

    return make


def ask(*contents: str, seed: int = 0, **params: Json) -> Request:
    """A dialogue that starts with the user and alternates."""
    roles = ("user", "assistant")
    return Request(tuple({"role": roles[n % 2], "content": text} for n, text in enumerate(contents)), params, seed)


async def test_the_first_rule_that_holds_answers(script: Script) -> None:
    model = script(
        """
        [[rule]]
        first = 'def add\\('
        turn = 0
        reply = "first of add"
        [[rule]]
        first = 'def add\\('
        last = 'assert .* == 3'
        turn = [1, 2]
        reply = "repair of add"
        [[rule]]
        any = 'mul'
        reply = "something with mul"
        [[rule]]
        reply = "else"
        """
    )
    assert (await model.generate(ask("def add(a, b):"))).text == "first of add"
    assert (
        await model.generate(ask("def add(a, b):", "x", "it failed:\nassert add(1, 2) == 3"))
    ).text == "repair of add"
    assert (await model.generate(ask("def add(a, b):", "x", "no"))).text == "else"
    assert (await model.generate(ask("hello", "mul", "no"))).text == "something with mul"


async def test_jsonl_says_the_same_as_toml(script: Script) -> None:
    model = script('{"model": {"concurrency": 3}}\n{"turn": 0, "reply": "a"}\n\n{"reply": "b"}\n')
    assert model.concurrency == 3
    assert [(await model.generate(ask(*"xyz"[:n]))).text for n in (1, 3)] == ["a", "b"]


async def test_seed_or_turn_chooses(script: Script) -> None:
    model = script('{"last": "s", "replies": ["a", "b", "c"]}\n{"replies": ["d", "e"], "choose": "turn"}')
    assert [(await model.generate(ask("s", seed=seed))).text for seed in range(5)] == ["a", "b", "c", "a", "b"]
    dialogues = [("t",), ("t", "d", "t"), ("t", "d", "t", "e", "t")]
    assert [(await model.generate(ask(*dialogue, seed=7))).text for dialogue in dialogues] == ["d", "e", "d"]


async def test_template_fills_groups_and_leaves_other_braces(script: Script) -> None:
    model = script(
        """
        [[rule]]
        first = 'def (?P<name>\\w+)\\('
        last = '== (?P<value>.*)$'
        template = true
        reply = 'def {name}(*a): return {value}  # {turn} {seed} {unknown} f"{x!r}" {}'
        """
    )
    reply = await model.generate(ask("def f(x):\n  pass", "no", "assert f(1) == 2\nthanks", seed=5))
    assert reply.text == 'def f(*a): return 2  # 1 5 {unknown} f"{x!r}" {}'


async def test_usage_is_characters_by_four_and_prices_make_cost(script: Script) -> None:
    model = script('[model]\nprompt_price = 2.0\ncompletion_price = 10.0\n[[rule]]\nreply = "123456789"')
    reply = await model.generate(ask("12345", "1", "1234"))
    assert (reply.prompt_tokens, reply.completion_tokens, reply.finish_reason) == (2 + 1 + 1, 3, "stop")
    assert reply.cost == pytest.approx(4 * 2e-6 + 3 * 10e-6)
    cut = await model.generate(ask("x", max_tokens=2))
    assert (cut.text, cut.completion_tokens, cut.finish_reason) == ("12345678", 2, "length")


async def test_no_price_is_no_cost_and_empty_replies_are_replies(script: Script) -> None:
    reply = await script('{"reply": "", "finish": "content_filter"}').generate(ask("x"))
    assert (reply.text, reply.completion_tokens, reply.finish_reason, reply.cost) == ("", 0, "content_filter", None)


async def test_order_and_concurrency_change_no_reply(script: Script) -> None:
    model = script('{"replies": ["a{turn}", "b", "c{seed}"], "template": true, "delay": [0, 0.002]}')
    requests = [ask(f"problem {n}", *["r", "again"] * (n % 3), seed=n * 7919) for n in range(60)]
    alone = [await model.generate(request) for request in requests]
    together = await asyncio.gather(*(model.generate(request) for request in reversed(requests)))
    assert alone == together[::-1]
    assert len({reply.seconds for reply in alone}) > 30
    assert all(0 <= reply.seconds <= 0.002 for reply in alone)


async def test_faults_come_as_often_as_said_for_each_request(script: Script) -> None:
    model = script('{"fault": "rate_limit", "times": 2, "retry_after": 0.5, "reply": "ok"}')
    for text in ("one", "two"):
        for _ in range(2):
            with pytest.raises(ModelError, match="rate limit") as caught:
                await model.generate(ask(text))
            assert (caught.value.retryable, caught.value.retry_after) == (True, 0.5)
        assert [(await model.generate(ask(text))).text for _ in range(2)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("fault", "retryable"),
    [("rate_limit", True), ("dead", True), ("timeout", True), ("authentication", False), ("context", False)],
)
async def test_a_fault_without_times_stays(script: Script, fault: str, retryable: bool) -> None:
    model = script(f'{{"fault": "{fault}"}}')
    for _ in range(3):
        with pytest.raises(ModelError) as caught:
            await model.generate(ask("x"))
        assert caught.value.retryable is retryable


async def test_no_rule_is_a_fault_that_shows_the_message(script: Script) -> None:
    with pytest.raises(ModelError, match="no rule holds at turn 0; the last message starts 'hello'") as caught:
        await script('{"last": "never", "reply": "x"}').generate(ask("hello"))
    assert not caught.value.retryable


async def test_identity_is_the_content_and_not_the_place(tmp_path: Path) -> None:
    texts = {"a.jsonl": '{"reply": "x"}', "b.jsonl": '{"reply": "x"}', "c.jsonl": '{"reply": "y"}'}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    one, same, other = [await open_model(f"scripted:{tmp_path / name}").start() for name in texts]
    assert one == same != other


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"reply": "a"}\n{"reply": "a", "tunr": 1}', "line 2, field 'tunr': no such field; known: first, last"),
        ('{"reply": "a"}\n\n{"reply": "a", "turn": "x"}', "line 3, field 'turn'"),
        ('{"reply": "a"}\n{"reply": ', "line 2: not JSON"),
        ('{"reply": "a"}\n{"last": "(", "reply": "a"}', "line 2, field 'last': not a regular expression"),
        ('{"reply": "a"}\n{"reply": 3}', "line 2, field 'reply'"),
        ('{"model": {"concurrency": 0}}\n{"reply": "a"}', "line 1, field 'concurrency'"),
        ('[[rule]]\nreply = "a"\n\n[[rule]]\nreply = "a"\ndelay = -1', "line 4, field 'delay'"),
        ('[[rule]]\nreply = "a"\ndelay = [2, 1]', "line 1: delay is a range"),
        ("[[rule]]\nreplies = []", "line 1, field 'replies'"),
        ('[[rule]]\nfault = "earthquake"', "line 1, field 'fault'"),
        ("[[rule]]\nturn = 1", "line 1: give reply, replies or fault"),
        ('[[rule]]\nfault = "dead"\nreply = "a"', "line 1: a fault without times never answers"),
        ('[[rule]]\nreply = "a"\ntimes = 1', "line 1: times says how often a fault comes"),
        ('[[rule]]\nreply = "a"\nreplies = ["b"]', "line 1: give reply or replies"),
        ('[[rules]]\nreply = "a"', "unknown key 'rules'"),
        ('[rule]\nreply = "a"', "two brackets"),
        ("reply = ", "not TOML"),
        ("", "no rule"),
    ],
)
def test_a_wrong_script_is_told_where(script: Script, text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        script(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_script_and_wrong_options_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        open_model(f"scripted:{tmp_path / 'none.toml'}")
    with pytest.raises(UserError, match="api_base has no meaning"):
        open_model("scripted:x", api_base="http://localhost")
