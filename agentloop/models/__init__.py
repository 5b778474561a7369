"""Models: leaves that answer requests and know neither graphs nor stores. `open_model` finds one by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentloop.errors import UserError

if TYPE_CHECKING:
    from agentloop.fetch import Progress
    from agentloop.protocols import Model
    from agentloop.types import Json


def open_model(
    name: str,
    *,
    api_base: str | None = None,
    api_key_env: str | None = None,
    concurrency: int | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    timeout: float | None = None,
    params: dict[str, Json] | None = None,
    progress: Progress | None = None,
) -> Model:
    """The model of a name, not started yet; nothing heavy is imported before `start()`.

    `local/NAME` runs a pinned model on this machine, `scripted:FILE` answers by rules, anything else is a LiteLLM name
    (`openai/gpt-4o`). `api_base` is the base URL of an OpenAI-compatible server (with `openai/NAME`), `api_key_env` the
    environment variable that holds its key. `concurrency`, `requests_per_minute`, `tokens_per_minute` limit the model;
    `timeout` is that of one call, in seconds. `params` are those that the run will send: the check at the start carries
    them, so that a refusal shows before the run. `progress` sees the download of a local model.
    Raises `UserError` for a name or an option that cannot be used.
    """
    positive = {
        "concurrency": concurrency,
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "timeout": timeout,
    }
    for option, value in positive.items():
        if value is not None and value <= 0:
            raise UserError(f"model {name}: {option} must be above 0, not {value}")
    provider_only = [
        option
        for option, value in {
            "api_base": api_base,
            "api_key_env": api_key_env,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }.items()
        if value is not None
    ]
    if name.startswith(("local/", "scripted:")) and provider_only:
        raise UserError(f"model {name}: {provider_only[0]} has no meaning here; it is for models of a provider")
    if name.startswith("scripted:"):
        from agentloop.models.scripted import ScriptedModel

        return ScriptedModel(name, concurrency=concurrency)
    if name.startswith("local/"):
        from agentloop.models.local import LocalModel

        if concurrency not in (None, 1):
            raise UserError(f"model {name}: concurrency is 1: two answers at once take as long as one after the other")
        return LocalModel(name, timeout=timeout, progress=progress)
    from agentloop.models.limiter import Limiter
    from agentloop.models.provider import ProviderModel

    limiter = Limiter(concurrency or 8, requests_per_minute, tokens_per_minute)
    return ProviderModel(
        name, api_base=api_base, api_key_env=api_key_env, limiter=limiter, timeout=timeout or 120.0, params=params or {}
    )
