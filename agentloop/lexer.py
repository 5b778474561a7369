"""A lexer: source of C, C++, Java and Rust as tokens, without comments and white space: for identity, class names.

One regular expression, in linear time whatever the text is: each alternative matches on, an end of text being an end
too. It is no parser; where it is wrong (a nested comment of Rust), only two texts are told apart that are the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r'''
      (?P<directive> ^[ \t]*+\#(?![!\[])(?:[^\\\n]|\\.)*+ )     # of the preprocessor: its line is its end
    | (?P<skip> \n++ | [^\S\n]++ | //[^\n]*+ | /\*.*?(?:\*/|\Z) )
    | """ (?:[^\\"]|\\.|"(?!""))*+ (?:"""|\Z)                   # a text block
    | \bR"(?P<end>[^()\\\s]{0,16}+)\( .*? (?:\)(?P=end)"|\Z)    # raw strings of C++ and Rust
    | \bb?r(?P<marks>\#*+)" .*? (?:"(?P=marks)|\Z)
    | "(?:[^\\"]|\\.)*+(?:"|\Z)
    | '(?:\\.[^'\n]{0,10}+|[^\\'\n])'                           # not a lifetime
    | \w++
    | [-+*/%=<>!&|^~?:.@\\\#$]++
    | .
    ''',
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def tokens(source: str) -> Iterator[str]:
    """The tokens of a source, in order; a line of the preprocessor is one token."""
    for match in _TOKEN.finditer(source):
        if match.lastgroup == "directive":
            yield " ".join(match[0].split())
        elif match.lastgroup != "skip":
            yield match[0]
