"""How records lie in the store: JSON with its long texts taken out into content-addressed blobs, then compressed.

Dialogues share long prefixes and loops repeat programs, so each text is kept once (`llm`'s log does the same). A long
text inside a record becomes {"$": blob id}; a real object {"$": ...} cannot occur: records come from typed code.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import TYPE_CHECKING

from agentloop.errors import AgentloopError

if TYPE_CHECKING:
    import sqlite3

    from agentloop.types import Json

LONG = 96
"""Texts of at least so many characters become blobs; below, the reference costs more than it saves."""

# Names and phrases of nearly every record: a preset dictionary halves small ones. Part of the schema: never edit.
_DICTIONARY = (
    b"from typing import List, Tuple, Dict, Optional, Any\nimport math\nimport re\nfrom collections import Counter\n"
    b"class Solution:\n    def __init__(self):\n        self.\n    while True:\n        try:\n            raise "
    b"ValueError(\n        except Exception as e:\n    elif isinstance(, str):\n    if not :\n        return None\n"
    b"    return False\n"
    b"    return True\n    count = 0\n    result = []\n    for i in range(len():\n        for j in range(i + 1, n):\n"
    b"            if nums[i] == target:\n                result.append(\n    return result\n    for char in string:\n"
    b"    sorted(, key=lambda x: x[1], reverse=True)\n    max(min(sum(abs(int(str(set(list(dict(float(print(len(\n"
    b"    # Check if the list is empty\n    # Initialize \n    # Iterate over the numbers in the string\n"
    b"    You are given a list of integers. Write a function that takes an array and returns the sum of the "
    b"elements, "
    b"the number of words, the largest value or an empty string. The function should return an integer.\n    "
    b"Examples:\n    For example:\n    >>> ([1, 2, 3, 4, 5])\n    [0, 1, 2, 3]\n    Traceback (most "
    b"recent call last):\n"
    b'  File "main.py", line 1, in <module>\nTypeError: IndexError: list index out of range\nNameError: name is '
    b"not defined"
    b"Write a complete python solution for the following. Keep the given function name and arguments.\nAnswer with one "
    b"fenced code block and nothing else.\n\nHere is a programming task:\n\nThis python program was "
    b"written for it, and "
    b'it is wrong:\n\n```python\ndef (lst: List[int]) -> int:\n    """\n```\n\n0 of 2 tests pass. This one fails:\n\n'
    b"assert == \n\nThe program gives: \nIt must give: \n\nFind out why and write the whole corrected program in one "
    b"fenced code block. It has to differ from the program above.\n"
    b'{"truncated":[],"encoding":"utf-8","mechanism":{"memory":"cgroup"},"limit":null,"signal":null,"exit":0,"stderr":"",'
    b'"stdout":"","bytes":{"stdout":0,"stderr":0},"channel":"{\\"value\\": true}","wall":0.0,"cpu":0.0,"memory":'
    b'"request":{"messages":[{"role":"user","content":{"$":1}},{"role":"assistant","content":{"$":2}}],"params":'
    b'{"temperature":0.0,"max_tokens":768},"seed":,"sample":0,"occurrence":"0","role":"solver"},"reply":{"text":{"$":3},'
    b'"finish_reason":"stop","prompt_tokens":,"completion_tokens":,"seconds":,"cost":null,"cached_tokens":0,'
    b'"served_model":'
    b'"update":{"candidates":[{"index":0,"path":"","code":{"$":4},"rule":"fence","added":[],"outcome":"failed",'
    b'"detail":"",'
    b'"passed":0,"total":0,"failure":{"test":"0","show":"assert ","got":"","expected":""},"report":{"$":5},'
    b'"signature":"",'
    b'"ast":"","same_program":null,"same_failure":null,"execution":""}]},"decision":{"go":"repair_failed","reason":'
    b'"charged":{"calls":1,"prompt_tokens":,"completion_tokens":,"cost":0,"model_seconds":},"asks":[""],"runs":[""]'
)


class Blobs:
    """The blob table of one open store. Writing needs the store's writer connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._decoder = json.JSONDecoder(object_hook=self._text)

    def put(self, text: str) -> int:
        """The id of a text, stored if it is new."""
        raw = text.encode("utf-8", "surrogatepass")
        address = hashlib.sha256(raw).digest()
        row = self._db.execute("SELECT id FROM blobs WHERE hash=?", (address,)).fetchone()
        if row:
            return int(row[0])
        cursor = self._db.execute("INSERT INTO blobs(hash, data) VALUES(?, ?)", (address, _deflate(raw)))
        return int(cursor.lastrowid or 0)

    def get(self, blob: int) -> str:
        """The text of an id. Raises `AgentloopError` if it is missing or damaged."""
        row = self._db.execute("SELECT data FROM blobs WHERE id=?", (blob,)).fetchone()
        if row is None:
            raise AgentloopError(f"the store is damaged: blob {blob} is missing")
        return _inflate(row[0]).decode("utf-8", "surrogatepass")

    def pack(self, record: Json) -> bytes:
        """A record as bytes for a column."""
        return _deflate(json.dumps(self._out(record), separators=(",", ":")).encode())

    def unpack(self, data: bytes) -> Json:
        """The record of a column's bytes."""
        try:
            return self._decoder.decode(_inflate(data).decode())
        except ValueError as error:
            raise AgentloopError(f"the store is damaged: a record is none: {error}") from error

    def _out(self, value: Json) -> Json:
        if isinstance(value, str):
            return {"$": self.put(value)} if len(value) >= LONG else value
        if isinstance(value, dict):
            return {key: self._out(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._out(item) for item in value]
        return value

    def _text(self, value: dict[str, Json]) -> Json:
        """What stands for an object that was read: a reference's text, else the object itself."""
        return self.get(value["$"]) if len(value) == 1 and "$" in value else value


def _deflate(raw: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=_DICTIONARY)
    return packer.compress(raw) + packer.flush()


def _inflate(data: bytes) -> bytes:
    try:
        unpacker = zlib.decompressobj(-15, zdict=_DICTIONARY)
        raw = unpacker.decompress(data) + unpacker.flush()
    except zlib.error as error:
        raise AgentloopError(f"the store is damaged: {error}") from error
    if not unpacker.eof or unpacker.unused_data:  # zlib takes a cut text for one that goes on
        raise AgentloopError("the store is damaged: a compressed text is cut or has something after it")
    return raw
