"""What the tests of models need of a machine."""

from __future__ import annotations

from tests.conftest import PARTS


def _local_model() -> str | None:
    from agentloop.models.weights import available

    return available("qwen2.5-coder-0.5b") or None


PARTS.setdefault("local-model", _local_model)
