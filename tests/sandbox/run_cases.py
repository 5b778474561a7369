"""Runs the conformance cases on the local sandbox and prints one JSON object: {case: '' or what was wrong}.

A program of its own, so that it can run as another user and with another interpreter:
python run_cases.py LEVEL LANES [WORD]; with WORD only the cases that have it in their name, without CAP_SYS_PTRACE.
"""

import asyncio
import ctypes
import json
import sys

from agentloop.sandbox.local import LocalSandbox
from agentloop.testing import sandbox_cases, wrong

PR_CAPBSET_DROP, CAP_SYS_PTRACE = 24, 19


async def main(level: str, lanes: int, word: str = "") -> dict[str, str]:
    reduced = level == "reduced"
    if word and ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0) != 0:  # the lanes lack it
        raise OSError("the capability cannot be dropped")
    sandbox = LocalSandbox(lanes=lanes, reduced=reduced)
    try:
        await sandbox.start()
        return await wrong(sandbox, [case for case in sandbox_cases(reduced=reduced) if word in case[0]])
    finally:
        await sandbox.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))))
