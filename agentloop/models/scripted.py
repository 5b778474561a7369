"""`scripted:FILE`: a model that answers by the rules of a TOML or JSONL file (docs/reference/scripted.md).

A reply is a pure function of the request (messages, parameters, seed), so concurrency and resume do not change it. Only
a fault that ends (`times`) counts the asks of this process, and a fault is never a reply.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agentloop.errors import ModelError, UserError, unreadable
from agentloop.hashing import digest
from agentloop.types import Reply

if TYPE_CHECKING:
    from agentloop.types import Json, Request

CHARACTERS_PER_TOKEN = 4
"""The documented rule of usage: a text of n characters counts as n / 4 tokens, rounded up."""

_FAULTS: dict[str, tuple[str, bool]] = {
    "rate_limit": ("rate limit reached", True),
    "dead": ("connection refused", True),
    "timeout": ("no answer in time", True),
    "authentication": ("the key was refused", False),
    "context": ("context window exceeded", False),
}

Checked = TypeVar("Checked", bound=BaseModel)
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """The `[model]` table: what holds for every reply. Prices in US dollars for a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    concurrency: Annotated[int, Field(ge=1)] = 64
    prompt_price: Annotated[float, Field(ge=0)] | None = None
    completion_price: Annotated[float, Field(ge=0)] | None = None


class Rule(BaseModel):
    """One rule: conditions that must all hold, then what is answered. The first rule that holds is taken."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: re.Pattern[str] | None = None
    last: re.Pattern[str] | None = None
    any: re.Pattern[str] | None = None
    turn: int | list[int] | None = None
    reply: str | None = None
    replies: Annotated[list[str], Field(min_length=1)] | None = None
    choose: Literal["seed", "turn"] = "seed"
    template: bool = False
    finish: Literal["stop", "length", "content_filter"] = "stop"
    delay: Seconds | tuple[Seconds, Seconds] = 0.0
    fault: Literal["rate_limit", "dead", "timeout", "authentication", "context"] | None = None
    times: Annotated[int, Field(ge=1)] | None = None
    retry_after: Seconds | None = None

    @field_validator("first", "last", "any", mode="before")
    @classmethod
    def _compile(cls, value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError("must be a regular expression in a string")
        try:
            return re.compile(value, re.MULTILINE)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None

    @model_validator(mode="after")
    def _one_answer(self) -> Rule:
        if self.reply is not None and self.replies is not None:
            raise ValueError("give reply or replies, not both")
        if self.times is not None and self.fault is None:
            raise ValueError("times says how often a fault comes: give fault too")
        if isinstance(self.delay, tuple) and self.delay[0] > self.delay[1]:
            raise ValueError("delay is a range: give the smaller number first")
        forever = self.fault is not None and self.times is None
        answers = self.reply is not None or self.replies is not None
        if forever and answers:
            raise ValueError("a fault without times never answers: give times, or no reply")
        if not forever and not answers:
            raise ValueError("give reply, replies or fault")
        return self

    def match(self, messages: tuple[dict[str, str], ...], turn: int) -> dict[str, str] | None:
        """The named groups of the patterns if all conditions hold, else None."""
        if self.turn is not None and turn not in ([self.turn] if isinstance(self.turn, int) else self.turn):
            return None
        users = [message["content"] for message in messages if message["role"] == "user"]
        everything = [message["content"] for message in messages]
        groups: dict[str, str] = {}
        for pattern, texts in ((self.first, users[:1]), (self.last, everything[-1:]), (self.any, everything)):
            if pattern is None:
                continue
            found = next((hit for text in texts if (hit := pattern.search(text))), None)
            if found is None:
                return None
            groups |= {name: text or "" for name, text in found.groupdict().items()}
        return groups

    def text(self, seed: int, turn: int, groups: dict[str, str]) -> str:
        """The reply, chosen and filled in."""
        replies = self.replies or [self.reply or ""]
        chosen = replies[(seed if self.choose == "seed" else turn) % len(replies)]
        if not self.template:
            return chosen
        values = groups | {"seed": str(seed), "turn": str(turn)}
        return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), chosen)

    def wait(self, key: str) -> float:
        """Seconds to wait: the given ones, or a point of the given range that the request's digest decides."""
        if isinstance(self.delay, float):
            return self.delay
        low, high = self.delay
        return low + (high - low) * int(key[:8], 16) / 0xFFFFFFFF


class ScriptedModel:
    """The model of one script file. No heavy import, no network, no retries of its own."""

    def __init__(self, name: str, *, concurrency: int | None = None) -> None:
        self.name = name
        self._path = Path(name.removeprefix("scripted:")).expanduser()
        data = _read(self._path)
        self._digest = hashlib.sha256(data).hexdigest()
        self._settings, self._rules = _parse(self._path, data)
        self.concurrency = concurrency or self._settings.concurrency
        prices = (self._settings.prompt_price, self._settings.completion_price)
        self.prices = None if prices == (None, None) else ((prices[0] or 0.0) / 1e6, (prices[1] or 0.0) / 1e6)
        """US dollars for a token of the prompt and of the completion, where the script gives prices."""
        self._asked: Counter[str] = Counter()

    async def start(self) -> dict[str, Json]:
        """The identity: the digest of the script."""
        return {"provider": "scripted", "script": self._digest}

    async def generate(self, request: Request) -> Reply:
        """The reply of the first rule that holds. Raises `ModelError` for a scripted fault or when no rule holds."""
        turn = sum(message["role"] == "assistant" for message in request.messages)
        key = digest({"messages": list(request.messages), "params": request.params, "seed": request.seed})
        for number, rule in enumerate(self._rules, 1):
            groups = rule.match(request.messages, turn)
            if groups is None:
                continue
            seconds = rule.wait(key)
            if seconds:
                await asyncio.sleep(seconds)
            self._fail(rule, f"{number} {key}")
            return self._reply(rule, rule.text(request.seed, turn, groups), request, seconds)
        last = request.messages[-1]["content"] if request.messages else ""
        raise ModelError(
            f"{self.name}: no rule holds at turn {turn}; the last message starts {last[:80]!r}", retryable=False
        )

    async def close(self) -> None:
        """Nothing to free."""

    def _fail(self, rule: Rule, key: str) -> None:
        if rule.fault is None:
            return
        if rule.times is not None:
            if self._asked[key] == rule.times:
                return
            self._asked[key] += 1
        words, retryable = _FAULTS[rule.fault]
        raise ModelError(f"{self.name}: {words} (scripted)", retryable=retryable, retry_after=rule.retry_after)

    def _reply(self, rule: Rule, text: str, request: Request, seconds: float) -> Reply:
        limit, finish = request.params.get("max_tokens"), rule.finish
        if limit is not None and _tokens(text) > limit:
            text, finish = text[: limit * CHARACTERS_PER_TOKEN], "length"
        prompt, completion = sum(_tokens(message["content"]) for message in request.messages), _tokens(text)
        cost = None if self.prices is None else prompt * self.prices[0] + completion * self.prices[1]
        return Reply(
            text=text,
            finish_reason=finish,
            prompt_tokens=prompt,
            completion_tokens=completion,
            seconds=seconds,
            cost=cost,
            served_model="scripted",
        )


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable("the script", path, error) from None


def _parse(path: Path, data: bytes) -> tuple[Settings, list[Rule]]:
    """Settings and rules of a script. Raises `UserError` that names file, line and field."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    table, records = _toml(path, text) if path.suffix == ".toml" else _jsonl(path, text)
    settings = _checked(Settings, *table) if table else Settings()
    rules = [_checked(Rule, where, record) for where, record in records]
    if not rules:
        raise UserError(f"{path}: the script has no rule")
    return settings, rules


Record = tuple[str, Any]
"""Where a record stands ("FILE line 3") and its value."""


def _toml(path: Path, text: str) -> tuple[Record | None, list[Record]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    unknown = sorted(document.keys() - {"model", "rule"})
    if unknown:
        raise UserError(f"{path}: unknown key {unknown[0]!r}; known: [model], [[rule]]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*rule\s*\]\]", line)]
    rules = document.get("rule", [])
    if not isinstance(rules, list):
        raise UserError(f"{path}: write [[rule]] with two brackets for each rule")
    # A [[rule]] inside a reply's text would shift the lines; then only the number of the rule is sure.
    places = (
        [f"line {line}" for line in lines] if len(lines) == len(rules) else [f"rule {n + 1}" for n in range(len(rules))]
    )
    records = [(f"{path} {place}", rule) for place, rule in zip(places, rules, strict=True)]
    return ((f"{path} [model]", document["model"]) if "model" in document else None), records


def _jsonl(path: Path, text: str) -> tuple[Record | None, list[Record]]:
    table: Record | None = None
    records: list[Record] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
        if not isinstance(value, dict):
            raise UserError(f"{where}: must be an object")
        if value.keys() == {"model"} and table is None and not records:
            table = (where, value["model"])
        else:
            records.append((where, value))
    return table, records


def _checked(kind: type[Checked], where: str, value: Any) -> Checked:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        # pydantic's location goes on into the branches of a union; the field is its first part.
        field = f", field {first['loc'][0]!r}" if first["loc"] else ""
        words = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            words = f"no such field; known: {', '.join(kind.model_fields)}"
        raise UserError(f"{where}{field}: {words}") from None
