"""Runs a program that never ends in a local sandbox and waits to be killed: python hold.py LEVEL"""

import asyncio
import sys

from agentloop.sandbox.conformance import call
from agentloop.sandbox.local import LocalSandbox
from agentloop.types import Job, Limits

PROGRAM = """
import os, time
def f():
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
"""


async def main(level: str) -> None:
    sandbox = LocalSandbox(lanes=1, reduced=level == "reduced")
    await sandbox.start()
    task = asyncio.ensure_future(sandbox.execute(Job("python", PROGRAM, (call("f"),), Limits(wall=300.0))))
    print("started", flush=True)
    await task


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
