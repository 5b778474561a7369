"""Content addresses: one canonical JSON and one digest for everything that is keyed or compared."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentloop.types import Json


def canonical(value: Json) -> str:
    """The one JSON text of a value: sorted keys, no spaces, lone surrogates escaped."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Json) -> str:
    """SHA-256 of the canonical JSON, as 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def text_digest(text: str) -> str:
    """SHA-256 of a text (lone surrogates kept), as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def derive_seed(*parts: Json) -> int:
    """A seed of 31 bits from what identifies a draw, the same on every machine (providers take signed 32-bit seeds)."""
    return int(digest(list(parts))[:8], 16) & 0x7FFFFFFF
