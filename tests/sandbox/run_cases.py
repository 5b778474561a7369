"""Runs the conformance cases on the local sandbox and prints one JSON object: {case: '' or what was wrong}.

A program of its own, so that it can run as another user and with another interpreter: python run_cases.py LEVEL LANES
"""

import asyncio
import json
import sys

from agentloop.sandbox.local import LocalSandbox
from agentloop.testing import sandbox_cases, wrong


async def main(level: str, lanes: int) -> dict[str, str]:
    reduced = level == "reduced"
    sandbox = LocalSandbox(lanes=lanes, reduced=reduced)
    try:
        await sandbox.start()
        return await wrong(sandbox, sandbox_cases(reduced=reduced))
    finally:
        await sandbox.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2])))))
