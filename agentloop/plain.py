"""Plain data: values of programs as tagged JSON. Decoding never runs code and never trusts what it reads.

`None`, bool, int, finite float, str and list are themselves; everything else is an object with one key that names the
type: `{"float": "nan"|"inf"|"-inf"}`, `{"int": "0x..."}` (over 2**53), `{"tuple": [...]}`, `{"set": [...]}`,
`{"frozenset": [...]}`, `{"dict": [[key, value], ...]}`, `{"bytes": "base64"}`, `{"complex": [re, im]}`,
`{"str": "base64"}` (lone surrogates), `{"iterator": [...]}` (generators, iterators, ranges).
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from agentloop.types import Json

MAX_DEPTH = 250
"""Deepest nesting of JSON that is read or written here: far below Python's recursion limit, so that the same text gives
the same answer wherever on the stack it is decoded. (A tuple, set or dict takes two levels.)"""

MAX_COLLISIONS = 500
"""Most different items of a set, or keys of a dict, with one hash."""

_EXACT = 2**53


_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?')


class Unplain(ValueError):
    """A value that plain data cannot carry, or text that is not plain data. The message says which."""


class TooDeep(Unplain):
    """Nested deeper than `MAX_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")


@dataclass(frozen=True, slots=True)
class Iterated:
    """What an iterator, generator or range gave. Equal to no list or tuple, as in Python; to another by its items."""

    items: tuple[Any, ...]


def loads(text: str) -> Json:
    """JSON from an untrusted process. Raises `TooDeep`, or `Unplain` when it is malformed."""
    if text.count("[") + text.count("{") > MAX_DEPTH:
        depth = 0
        for char in re.sub(r"[^\[\]{}]", "", _STRING.sub("", text)):
            depth += 1 if char in "[{" else -1
            if depth > MAX_DEPTH:
                raise TooDeep
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unplain(f"not JSON: {cap(str(error), 100)}") from error


def encode(value: object) -> Json:
    """Plain data for a Python value of our own (arguments, expected values). Raises `Unplain` for any other type."""
    return _encode(value, MAX_DEPTH)


def _encode(value: Any, room: int) -> Json:
    if room <= 0:
        raise TooDeep
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -_EXACT <= value <= _EXACT else {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"str": base64.b64encode(value.encode(errors="surrogatepass")).decode()}
        return value
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if kind is complex:
        return {"complex": [_encode(value.real, room - 2), _encode(value.imag, room - 2)]}
    if kind is list:
        return [_encode(item, room - 1) for item in value]
    if kind is dict:
        return {"dict": [[_encode(key, room - 3), _encode(item, room - 3)] for key, item in value.items()]}
    if kind in (tuple, set, frozenset, range, Iterated):
        items = [_encode(item, room - 2) for item in (value.items if kind is Iterated else value)]
        if kind in (set, frozenset):
            items.sort(key=lambda item: json.dumps(item, sort_keys=True))  # one text for equal sets
        return {"iterator" if kind in (range, Iterated) else kind.__name__: items}
    raise Unplain(f"not plain data: {kind.__name__}")


def decode(data: Json) -> Any:
    """The Python value of plain data. Raises `Unplain` when it is not plain data or no such value can exist.

    A set of lists and a dict with a list as key cannot exist; they are refused, as Python would.
    """
    return _decode(data, MAX_DEPTH)


def _decode(data: Json, room: int) -> Any:
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if room <= 0:
        raise TooDeep
    if isinstance(data, list):
        return [_decode(item, room - 1) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise Unplain("not plain data: an object needs exactly one key")
    [(tag, body)] = data.items()
    try:
        if tag in ("tuple", "set", "frozenset", "iterator"):
            items = [_decode(item, room - 2) for item in _list(body)]
            if tag == "iterator":
                return Iterated(tuple(items))
            return _CONTAINERS[tag](items if tag == "tuple" else spread(items))
        if tag == "dict":
            pairs = [(_decode(key, room - 3), _decode(item, room - 3)) for key, item in map(_list, _list(body))]
            spread([key for key, _ in pairs])
            return dict(pairs)
        if tag == "complex":
            real, imaginary = (_decode(part, 1) for part in _list(body))
            return complex(real, imaginary)
        if tag in ("bytes", "str"):
            raw = base64.b64decode(body, validate=True)
            return raw if tag == "bytes" else raw.decode(errors="surrogatepass")
        if tag == "int":
            return int(body, 16)
        if tag == "float" and body in ("nan", "inf", "-inf"):
            return float(body)  # a new NaN each time: one object in two lists would make them equal
    except Unplain:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # the last: parts of a complex number beyond all floats
        raise Unplain(f"no such {tag}: {cap(str(error), 100)}") from error
    raise Unplain(f"not plain data: {cap(tag, 40)!r} of {cap(repr(body), 40)}")


_CONTAINERS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def spread(items: Collection[Any]) -> Collection[Any]:
    """The same items, fit for a set or a dict. Raises `Unplain` where so many have one hash that making it takes long.

    Hashes of numbers are no secret: thousands of them, chosen to collide, cost whoever puts them into a set minutes.
    """
    alike = Counter(map(hash, items)) if len(items) > MAX_COLLISIONS else {}
    for number, count in alike.items():
        if count > MAX_COLLISIONS:  # the same item many times costs nothing
            texts = {json.dumps(_encode(item, MAX_DEPTH)) for item in items if hash(item) == number}
            if len(texts) > MAX_COLLISIONS:
                raise Unplain(f"more than {MAX_COLLISIONS} items with one hash")
    return items


def _list(data: Json) -> list[Json]:
    if not isinstance(data, list):
        raise Unplain("not plain data: a list is missing")
    return data


def to_source(data: Json, limit: int = 1200) -> str:
    """Plain data as a person would write it in Python, at most about `limit` characters (see `cap`).

    Sets come in a fixed order, NaN as `nan`, iterators as `<iterator of [...]>`. Never raises for decodable data.
    """
    return cap(_source(data, MAX_DEPTH), limit)


def _source(data: Json, room: int) -> str:
    if room <= 0:
        return "..."
    if isinstance(data, list):
        return f"[{', '.join(_source(item, room - 1) for item in data)}]"
    if not isinstance(data, dict):
        return repr(data)
    [(tag, body)] = data.items()
    if tag == "dict":
        return "{" + ", ".join(f"{_source(key, room - 3)}: {_source(item, room - 3)}" for key, item in body) + "}"
    if tag in ("tuple", "set", "frozenset", "iterator"):
        parts = [_source(item, room - 2) for item in body]
        if tag == "tuple":
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        if tag == "iterator":
            return f"<iterator of [{', '.join(parts)}]>"
        inner = "{" + ", ".join(sorted(parts) if len(parts) > 1 else parts) + "}"
        return (inner if parts else "set()") if tag == "set" else f"frozenset({inner if parts else ''})"
    if tag == "int":
        # Decimal digits of a huge int cost quadratic time, and Python refuses over 4,300 of them.
        return str(int(body, 16)) if len(body) < 1000 else body
    return repr(_decode(data, 3))


def cap(text: str, limit: int = 1200) -> str:
    """`text` with its middle cut out when it is longer than `limit`, and lone surrogates replaced: fit to be stored.

    What is shorter than the mark that would stand in its place is not cut.
    """
    mark = f" ... [{len(text) - limit} characters cut] ... "
    if len(text) > limit + len(mark):
        head = limit * 2 // 3
        text = f"{text[:head]}{mark}{text[len(text) - (limit - head) :]}"
    return text.encode(errors="replace").decode()
