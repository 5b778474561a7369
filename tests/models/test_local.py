"""The real local model: one text for one request, and a child process that never outlives us."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from agentloop.errors import ModelError, UserError
from agentloop.models import open_model
from agentloop.models.local import LocalModel, default_threads, load_error
from agentloop.types import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agentloop.types import Json

pytestmark = pytest.mark.asyncio(loop_scope="module")  # one load of the model serves all tests

NAME = "local/qwen2.5-coder-0.5b"
SERVER = Path(sys.modules[LocalModel.__module__].__file__ or "").with_name("local_server.py")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(need: Callable[[str], None]) -> AsyncIterator[LocalModel]:
    need("local-model")
    one = LocalModel(NAME)
    await one.start()
    yield one
    await one.close()


def ask(text: str, seed: int = 1, **params: Json) -> Request:
    return Request(({"role": "user", "content": text},), {"temperature": 0.0, "max_tokens": 12, **params}, seed)


def children() -> list[int]:
    """Processes that run our server file, by whoever started them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(SERVER).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended while we looked
    return found


class TestAnswers:
    async def test_one_request_has_one_text(self, model: LocalModel) -> None:
        question = ask("Write a Python function that reverses a string.")
        first = await model.generate(question)
        # Another prompt with the same beginning in between: what a prompt cache would make a difference of.
        await model.generate(ask("Write a Python function that reverses a list."))
        again = await model.generate(question)
        assert first.text
        assert again.text == first.text
        assert (again.prompt_tokens, again.completion_tokens) == (first.prompt_tokens, first.completion_tokens)
        assert (first.cached_tokens, first.cost, first.served_model) == (0, 0.0, "qwen2.5-coder-0.5b")

    async def test_the_seed_draws(self, model: LocalModel) -> None:
        texts = [(await model.generate(ask("Invent a name.", seed, temperature=1.5))).text for seed in (1, 2, 3, 1)]
        assert texts[0] == texts[3]
        assert len(set(texts)) > 1
        for huge in (2**32 - 1, 2**63):
            assert (await model.generate(ask("Say hi.", huge))).text

    async def test_limits_and_ends(self, model: LocalModel) -> None:
        cut = await model.generate(ask("Count from 1 to 100.", max_tokens=5))
        assert (cut.completion_tokens, cut.finish_reason) == (5, "length")
        stopped = await model.generate(ask("Count from 1 to 9: 1, 2,", stop=["5"], max_tokens=40))
        assert (stopped.finish_reason, "5" in stopped.text) == ("stop", False)
        with pytest.raises(ModelError, match="context window exceeded") as caught:
            await model.generate(ask("x = 1\n" * 5000))
        assert not caught.value.retryable
        with pytest.raises(ModelError) as caught:
            await model.generate(ask("hi", temperature="hot"))
        assert not caught.value.retryable

    async def test_asked_together_they_answer_one_after_the_other(self, model: LocalModel) -> None:
        assert model.concurrency == 1
        replies = await asyncio.gather(*(model.generate(ask(f"Say {n}.", max_tokens=4)) for n in range(3)))
        assert all(reply.text for reply in replies)


class TestChild:
    async def test_a_killed_child_is_started_again(self, model: LocalModel) -> None:
        before = await model.generate(ask("Say yes."))
        assert model._server is not None
        os.kill(model._server.pid, signal.SIGKILL)
        assert (await model.generate(ask("Say yes."))).text == before.text

    async def test_the_identity_pins_weights_and_runtime_and_close_ends_the_child(
        self, need: Callable[[str], None]
    ) -> None:
        need("local-model")
        one = LocalModel(NAME)
        identity = await one.start()
        assert identity["weights"] == "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
        assert identity["runtime"].startswith("xllamacpp 2")
        assert one._server is not None
        pid = one._server.pid
        assert pid in children()
        await one.close()
        await one.close()
        assert pid not in children()

    async def test_close_ends_open_asks_and_starts_nothing_again(self, need: Callable[[str], None]) -> None:
        need("local-model")
        one = LocalModel(NAME)
        await one.start()
        assert one._server is not None
        pid = one._server.pid
        asks = [asyncio.ensure_future(one.generate(ask("Tell a long story.", max_tokens=4000))) for _ in range(2)]
        await asyncio.sleep(0)
        await one.close()
        for open_ask in asks:
            with pytest.raises(ModelError, match="is closed"):
                await open_ask
        assert one._server is None
        assert pid not in children()

    async def test_it_dies_with_its_parent(self, need: Callable[[str], None]) -> None:
        need("local-model")
        code = (
            "import asyncio, sys, time\n"
            "from agentloop.models.local import LocalModel\n"
            "async def main():\n"
            f"    model = LocalModel({NAME!r})\n"
            "    await model.start()\n"
            "    print(model._server.pid, flush=True)\n"
            "    await asyncio.sleep(600)\n"
            "asyncio.run(main())"
        )
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE
        )
        assert parent.stdout is not None
        child = int(await parent.stdout.readline())
        # A handle of the process itself: its number may be given to another one.
        handle = os.pidfd_open(child)
        parent.kill()
        await parent.wait()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(handle, ended.set)
        async with asyncio.timeout(10):
            await ended.wait()
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)

    async def test_it_ends_with_its_standard_input_and_says_what_is_wrong(self, tmp_path: Path) -> None:
        pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
        (tmp_path / "bad.gguf").write_bytes(b"not weights")
        config = (
            f'{{"path": "{tmp_path / "bad.gguf"}", "alias": "a", "key": "k", "threads": 1, "context": 512,'
            f' "parent": {os.getpid()}}}\n'
        )
        done = subprocess.run([sys.executable, "-P", SERVER], input=config, capture_output=True, text=True, check=False)
        assert done.stdout.startswith('{"error": ')
        assert done.returncode == 0


async def test_other_options_are_refused() -> None:
    with pytest.raises(UserError, match="unknown local model 'llama'"):
        open_model("local/llama")
    with pytest.raises(UserError, match="concurrency is 1"):
        open_model(NAME, concurrency=2)
    assert 1 <= default_threads() <= (os.cpu_count() or 1)


async def test_a_missing_runtime_is_told_with_the_way_to_install_it() -> None:
    code = (
        "import asyncio\nfrom agentloop.models import open_model\n"
        f"try: asyncio.run(open_model({NAME!r}).start())\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    # Without site-packages there is no xllamacpp.
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"UserError {NAME} needs the package xllamacpp: pip install 'agentloop-lab[local]'")


async def test_a_missing_system_library_is_told_with_its_package() -> None:
    words = "ImportError: libgomp.so.1: cannot open shared object file: No such file or directory"
    error = load_error(NAME, words)
    assert isinstance(error, UserError)
    assert str(error) == f"{NAME} needs the system library libgomp1: apt-get install libgomp1"
