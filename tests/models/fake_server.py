"""An OpenAI-compatible server on loopback that answers by a list and counts what it is asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """One HTTP answer. `hang`: none comes at all."""

    status: int = 200
    body: bytes | dict[str, Any] = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False


def good(text: str | None = "fine", finish: str = "stop", **more: Any) -> Answer:
    """A complete chat answer; `more` replaces top-level fields."""
    body = {
        "id": "one",
        "object": "chat.completion",
        "created": 1,
        "model": "served-name",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    }
    return Answer(body={**body, **more})


def error(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> Answer:
    """An error as OpenAI words it."""
    return Answer(status, {"error": {"message": message, **more}}, headers or {})


class FakeServer:
    """Gives `answers` one after the other, the last one for ever. `calls` are the bodies it got, `keys` their keys."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [good()]
        self.calls: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.base = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FakeServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    def say(self, *answers: Answer) -> None:
        """Forget what was asked and give these answers from now on."""
        self.answers = list(answers)
        self.calls.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                self.calls.append(json.loads(await reader.readexactly(int(fields["content-length"]))))
                self.keys.append(fields["authorization"])
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer.hang:
                    await reader.read()
                    return
                body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **answer.headers}
                lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                writer.write(f"HTTP/1.1 {answer.status} Said\r\n{lines}\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
