"""The child process of a `local/NAME` model: llama.cpp's own HTTP server on loopback. Run by path, never imported.

The first line on stdin is the configuration (JSON); the one line on stdout is {"address": URL} or {"error": text}. It
ends when stdin closes or its parent dies, however that dies.
"""

import ctypes
import json
import os
import signal
import sys
from typing import Any


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the parent ends (Linux; elsewhere the end of stdin does it)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)


def serve(config: dict[str, Any]) -> Any:
    """Load the model and open the server. Returns it; raises what llama.cpp or the dynamic linker says."""
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = config["path"]
    params.model_alias = {config["alias"]}
    params.api_keys = [config["key"]]
    params.hostnames = ["127.0.0.1"]
    params.n_ctx = config["context"]
    params.fit_params = False  # it would shrink the context where memory is short
    params.n_parallel = 1  # a second slot gains no speed on a CPU and halves the context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config["threads"]
    # With flash attention the text depends on the number of threads, without it does not; the speed is the same.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # A prompt whose start comes from the cache is rounded otherwise than one computed whole, so a text could depend on
    # what was asked before. Whole prompts cost about 40% more time in dialogues of three turns, nothing elsewhere.
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.n_threads_http = 2
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = 0
    return xllamacpp.Server(params)


def main() -> None:
    """Serve until stdin ends."""
    config = json.loads(sys.stdin.readline())
    die_with(config["parent"])
    # llama.cpp may print: our one line gets a channel of its own, all else goes to stderr.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        server = serve(config)
        said = {"address": server.listening_address}
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), file=channel, flush=True)
    if "address" in said:
        sys.stdin.read()
    os._exit(0)  # its threads hold nothing worth an orderly end


if __name__ == "__main__":
    main()
