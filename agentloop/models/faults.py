"""What a provider's failure means: worth another try or not, how long to wait, and one line without secrets.

Errors are told apart by HTTP status, which every LiteLLM exception carries, and by the few classes that a status hides.
"""

from __future__ import annotations

import email.utils
import math
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from agentloop.errors import ModelError
from agentloop.hashing import derive_seed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenacity import RetryCallState

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SECRET_SHAPE = re.compile(r"\b(?:sk|pk|gsk|xai|hf)[-_][\w-]{8,}|(?<=Bearer )\S+|\bAIza[\w-]{20,}")
_WRAPPING = re.compile(r"^(?:\b(?:litellm\.)?\w*(?:Error|Exception|Timeout)\b\s*(?:[:-]\s*)?)+")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The only retries: at most `tries` calls of one request within `seconds`.

    Waits double from `first` to `longest` seconds. A provider's Retry-After replaces the computed wait. Jitter takes up
    to half of a wait away and follows from the request, so a run repeats.
    """

    tries: int = 6
    seconds: float = 300.0
    first: float = 1.0
    longest: float = 60.0

    def wait(self, state: RetryCallState, seed: int) -> float:
        """Seconds before the next try, after the failed one in `state`."""
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ModelError) and error.retry_after is not None:
            return error.retry_after
        full = min(self.longest, self.first * 2.0 ** (state.attempt_number - 1))
        return full * (1.0 - 0.5 * derive_seed("jitter", seed, state.attempt_number) / 2**31)


def classify(error: BaseException, where: str, timeout: float, key: str | None = None) -> ModelError:
    """The `ModelError` of what LiteLLM raised.

    `where` names model and base, `timeout` (seconds) is that of the call, `key` is a secret to keep out of the message.
    """
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    said = one_line(str(error), key)
    if isinstance(error, TimeoutError) or kind == "Timeout":
        return ModelError(f"{where} did not answer in {timeout:g} s")
    if kind == "ContextWindowExceededError":
        return ModelError(f"{where}: context window exceeded: {said}", retryable=False)
    if kind == "ContentPolicyViolationError":
        return ModelError(f"{where}: refused by the provider's content policy: {said}", retryable=False)
    if kind == "APIConnectionError" or "Connection error." in said:
        # A server that is down comes as an InternalServerError 500 with these words.
        return ModelError(f"{where}: no connection; is the server running and the address right?")
    if status == 429:
        # A used-up quota has the status of a rate limit, but waiting does not fill it.
        quota = "quota" in said.lower() or "billing" in said.lower()
        return ModelError(f"{where}: rate limit: {said}", retryable=not quota, retry_after=retry_after(error))
    if status in (401, 403):
        return ModelError(f"{where}: the key was refused ({status}): {said}", retryable=False)
    if status == 404:
        return ModelError(f"{where}: unknown model or address (404): {said}", retryable=False)
    if kind == "UnsupportedParamsError":
        words = said.partition(". To drop these")[0]  # what follows is advice for users of LiteLLM
        return ModelError(f"{where} does not take a parameter of this run: {words}", retryable=False)
    if isinstance(status, int) and 400 <= status < 500 and status != 408:
        return ModelError(f"{where}: request refused ({status}): {said}", retryable=False)
    if isinstance(error, ImportError):
        return ModelError(f"{where}: this provider needs another package: {said}", retryable=False)
    return ModelError(f"{where}: {kind}: {said}", retry_after=retry_after(error))


def retry_after(error: BaseException) -> float | None:
    """Seconds that the answer's headers ask to wait (Retry-After in seconds or as a date, retry-after-ms), or None."""
    headers: Mapping[str, str] = getattr(getattr(error, "response", None), "headers", None) or {}
    if (exact := _number(headers.get("retry-after-ms"))) is not None:
        return exact / 1000
    text = headers.get("retry-after")
    if (seconds := _number(text)) is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time()) if text else None
    except ValueError:
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def one_line(text: str, key: str | None = None) -> str:
    """A provider's message for people: class names, line breaks and secrets taken out, at most 300 characters."""
    line = _WRAPPING.sub("", " ".join(text.split())).strip()
    return scrub(line, key)[:300] or "no message"


def scrub(text: str, key: str | None = None) -> str:
    """The text with `key`, every secret of the environment and what looks like a key replaced by `***`."""
    secrets = [value for name, value in os.environ.items() if _SECRET_NAME.search(name)] + [key or ""]
    for secret in sorted((one for one in secrets if len(one) >= 8), key=len, reverse=True):
        text = text.replace(secret, "***")
    return _SECRET_SHAPE.sub("***", text)


def public_base(base: str | None) -> str:
    """A base URL fit for identity and messages: without user, password, query. '' where the provider's own is used."""
    if not base:
        return ""
    parts = urlsplit(base)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
