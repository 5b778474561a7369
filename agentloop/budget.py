"""A run's ceilings: reserved before each call, settled after it, so that open calls cannot overshoot together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentloop.errors import Cancelled

if TYPE_CHECKING:
    from agentloop.types import Reply, Request

CHARACTERS_PER_TOKEN = 3
"""For a reservation only, on the safe side: code averages between 3 and 4 characters a token."""


@dataclass
class Ceilings:
    """What the whole run may still spend. Tokens are prompt + completion; cost is in US dollars."""

    max_tokens: int | None = None
    max_cost: float | None = None
    tokens: float = 0
    cost: float = 0
    """Spent so far, what the run's journal already paid included."""

    def reserve(self, request: Request, prices: tuple[float, float] | None) -> tuple[float, float]:
        """Reserve the most that a request can take. Raises `Cancelled` when a ceiling would be passed.

        `prices`: dollars per prompt and per completion token, None where unknown (then counted as free).
        """
        prompt = sum(len(message["content"]) for message in request.messages) / CHARACTERS_PER_TOKEN
        completion = float(request.params.get("max_tokens") or 4096)
        tokens = prompt + completion
        cost = prompt * prices[0] + completion * prices[1] if prices else 0.0
        if self.max_tokens is not None and self.tokens + tokens > self.max_tokens:
            raise Cancelled(
                f"ceiling --max-tokens {self.max_tokens:,}: {self.tokens:,.0f} spent or reserved, the next call may "
                f"take {tokens:,.0f}: give a higher one",
                retryable=False,
            )
        if self.max_cost is not None and self.cost + cost > self.max_cost:
            raise Cancelled(
                f"ceiling --max-cost {self.max_cost}: {self.cost:.4f} spent or reserved, the next call may "
                f"cost {cost:.4f}: give a higher one",
                retryable=False,
            )
        self.tokens += tokens
        self.cost += cost
        return tokens, cost

    def settle(self, reserved: tuple[float, float], reply: Reply | None) -> None:
        """Put what was really spent (nothing, for a call that failed) in the place of a reservation."""
        self.tokens -= reserved[0]
        self.cost -= reserved[1]
        if reply is not None:
            self.tokens += reply.prompt_tokens + reply.completion_tokens
            self.cost += reply.cost or 0.0
