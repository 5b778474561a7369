"""Any model that LiteLLM reaches: by its own name, or an OpenAI-compatible server by `openai/NAME` and a base URL.

LiteLLM translates and transports, one HTTP call for one `acompletion`; retries, limits and the journal are ours.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import ipaddress
import logging
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentloop.errors import ModelError, UserError
from agentloop.models.faults import RetryPolicy, classify, public_base
from agentloop.types import Reply, Request

if TYPE_CHECKING:
    from agentloop.models.limiter import Limiter
    from agentloop.types import Json

SENT = ("temperature", "top_p", "max_tokens", "stop", "seed")
"""Every parameter that a request can carry."""
DROPPABLE = ("seed",)
"""What is left out, and recorded, where a provider does not take it: nobody asked for the seed. All else is refused."""
CHECK = RetryPolicy(tries=2, seconds=30.0)
"""The check at the start gives up early: a wrong address should show at once."""


class ProviderModel:
    """One model of a provider. `start()` imports LiteLLM (seconds, 200 MB) and proves that the model answers."""

    def __init__(
        self,
        name: str,
        *,
        limiter: Limiter,
        api_base: str | None = None,
        api_key_env: str | None = None,
        timeout: float = 120.0,
        params: dict[str, Json] | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        if api_base is not None and not api_base.startswith(("http://", "https://")):
            raise UserError(f"model {name}: the API base must start with http:// or https://, not {api_base!r}")
        if api_base is not None and urlsplit(api_base).username is not None:
            raise UserError(
                f"model {name}: no user or password in the API base; put a key into a variable (api_key_env)"
            )
        self.name = name
        self.concurrency = limiter.concurrency
        self._limiter = limiter
        self._base = api_base
        self._key_env = api_key_env
        self._key: str | None = None
        self._timeout = timeout
        self._params = params or {}
        self._policy = policy or RetryPolicy()
        self._dropped: list[str] = []
        self.prices: tuple[float, float] | None = None
        """US dollars for a token of the prompt and of the completion, once started; None where no price is known."""
        self._litellm: Any = None

    async def start(self) -> dict[str, Json]:
        """Check key, name, parameters and that the model answers; return the identity (provider, base, name, ...)."""
        prefix = self.name.partition("/")[0].upper()
        # LiteLLM would read these itself; taken here, so that the identity names the server that really answers.
        self._base = self._base or os.environ.get(f"{prefix}_BASE_URL") or os.environ.get(f"{prefix}_API_BASE")
        self._check_outside()
        self._litellm = await asyncio.to_thread(_import_litellm)
        try:
            bare, provider, _, base = self._litellm.get_llm_provider(self.name, api_base=self._base)
        except Exception:
            raise UserError(
                f"unknown model {self.name!r}: LiteLLM names are PROVIDER/NAME (openai/gpt-4o); "
                "also local/NAME, scripted:FILE, and openai/NAME with --api-base URL"
            ) from None
        self._check_key()
        self._check_params(bare, provider)
        self.prices = self._prices(bare, provider)
        await self._check_answer()
        return {
            "provider": provider,
            "base": public_base(base),
            "name": bare,
            "litellm": importlib.metadata.version("litellm"),
            "dropped": self._dropped,
        }

    async def generate(self, request: Request) -> Reply:
        """One reply. Raises `ModelError` when the policy's tries are used up, at once where another try is useless.

        Tokens are the provider's count; where it gives none they are counted with LiteLLM's tokenizer.
        """
        return await self._with_retries(request, self._policy)

    async def close(self) -> None:
        """Close LiteLLM's HTTP clients. They are shared in the process: another model opens new ones when it asks."""
        if self._litellm is not None:
            await self._litellm.close_litellm_async_clients()
            self._litellm.in_memory_llm_clients_cache.flush_cache()
            self._litellm = None

    async def _with_retries(self, request: Request, policy: RetryPolicy) -> Reply:
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, stop_before_delay

        began = time.monotonic()
        tries = 0
        retrying = AsyncRetrying(
            stop=stop_after_attempt(policy.tries) | stop_before_delay(policy.seconds),
            wait=lambda state: policy.wait(state, request.seed),
            retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.retryable),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    tries += 1
                    return await self._once(request)
        except ModelError as error:
            if tries == 1:
                raise
            raise ModelError(
                f"{error} ({tries} tries in {time.monotonic() - began:.0f} s)",
                retryable=error.retryable,
                retry_after=error.retry_after,
            ) from None
        raise AssertionError("tenacity ends with a result or an error")

    async def _once(self, request: Request) -> Reply:
        estimate = sum(len(message["content"]) for message in request.messages) // 4
        async with self._limiter.slot(estimate + int(request.params.get("max_tokens") or 1024)) as slot:
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await self._litellm.acompletion(**self._arguments(request))
            except Exception as raised:
                error = classify(raised, self._where(), self._timeout, self._key)
                slot.spent(0)
                # A wait that no request outlasts (a daily quota) is a fault of each, not a silent stop of all.
                if error.retryable and error.retry_after and error.retry_after < self._policy.seconds:
                    self._limiter.hold(error.retry_after)
                # The original may hold the key in its message or request: it is not chained.
                raise error from None
            reply = self._reply(answer, request, time.monotonic() - began)
            slot.spent(reply.prompt_tokens + reply.completion_tokens)
            return reply

    def _arguments(self, request: Request) -> dict[str, Any]:
        sent = request.params | {"seed": request.seed % 2**31}
        return {
            "model": self.name,
            "messages": [message | {"content": _sendable(message["content"])} for message in request.messages],
            "api_base": self._base,
            "api_key": self._key,
            "timeout": self._timeout,
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": False,
            **{name: value for name, value in sent.items() if name not in self._dropped},
        }

    def _reply(self, answer: Any, request: Request, seconds: float) -> Reply:
        if not answer.choices:
            raise ModelError(f"{self._where()}: the answer has no choice in it")
        choice, usage = answer.choices[0], getattr(answer, "usage", None)
        text = choice.message.content or ""
        if not isinstance(text, str):
            raise ModelError(f"{self._where()}: the answer's content is not a text")
        prompt = max(0, getattr(usage, "prompt_tokens", 0) or 0)
        completion = max(0, getattr(usage, "completion_tokens", 0) or 0)
        if not prompt and not completion:
            prompt = self._litellm.token_counter(model=self.name, messages=list(request.messages))
            completion = self._litellm.token_counter(model=self.name, text=text) if text else 0
        details = getattr(usage, "prompt_tokens_details", None)
        cost = (getattr(answer, "_hidden_params", None) or {}).get("response_cost")
        return Reply(
            text=text,
            finish_reason=choice.finish_reason or "",
            prompt_tokens=prompt,
            completion_tokens=completion,
            seconds=seconds,
            cost=None if cost is None else float(cost),
            cached_tokens=getattr(details, "cached_tokens", None) or 0,
            served_model=answer.model or "",
        )

    def _prices(self, bare: str, provider: str) -> tuple[float, float] | None:
        entry = self._litellm.model_cost.get(self.name) or self._litellm.model_cost.get(bare)
        if not entry or entry.get("litellm_provider") != provider:
            return None
        return float(entry.get("input_cost_per_token") or 0.0), float(entry.get("output_cost_per_token") or 0.0)

    def _where(self) -> str:
        return f"{self.name} at {public_base(self._base)}" if self._base else self.name

    def _check_outside(self) -> None:
        if os.environ.get("AGENTLOOP_NO_OUTSIDE") == "1" and not _is_loopback(self._base):
            raise UserError(f"{self._where()}: calls to the outside are off (AGENTLOOP_NO_OUTSIDE=1)")

    def _check_key(self) -> None:
        if self._key_env:
            self._key = os.environ.get(self._key_env)
            if not self._key:
                raise UserError(f"{self.name}: the environment variable {self._key_env} is not set")
            return
        missing = self._litellm.validate_environment(self.name)["missing_keys"]
        # Only keys are asked for: regions and cloud credentials have other sources, the check request will tell.
        keys = [name for name in missing if name.endswith("_API_KEY")]
        if keys and self._base:
            self._key = "none"  # a server of one's own; the OpenAI client refuses to go without any key
        elif keys:
            raise UserError(f"{self.name} needs {' and '.join(keys)} in the environment")

    def _check_params(self, bare: str, provider: str) -> None:
        supported = self._litellm.get_supported_openai_params(bare, provider)
        refused = [name for name in SENT if supported is not None and name not in supported]
        self._dropped = [name for name in refused if name in DROPPABLE]
        wrong = [name for name in refused if name in self._params]
        if wrong:
            raise UserError(f"{self.name} does not take {', '.join(wrong)}: leave it out for this model")

    async def _check_answer(self) -> None:
        params = {name: value for name, value in self._params.items() if name != "stop"} | {"max_tokens": 16}
        question = Request(({"role": "user", "content": "Answer with the word: ready"},), params, seed=1)
        try:
            reply = await self._with_retries(question, CHECK)
        except ModelError as error:
            if error.retryable:
                raise
            raise UserError(str(error)) from None
        # Cut short by max_tokens, a reasoning model has not come to its answer yet; that is no fault.
        if not reply.text.strip() and reply.finish_reason == "stop":
            raise UserError(f"{self._where()} answered the check with nothing")


def _sendable(text: str) -> str:
    """The text as UTF-8 can carry it: half a surrogate pair, which a model may answer with, is sent as U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _import_litellm() -> Any:
    """LiteLLM without its downloads at import and without its log lines."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_OFFLINE_MODE", "True")
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


def _is_loopback(base: str | None) -> bool:
    host = urlsplit(base or "").hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
