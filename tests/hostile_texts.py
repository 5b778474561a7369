"""Texts that slow readers take for ever on; the tests see that they end, `benchmarks/hostile_texts.py` how soon."""

CODE = "def solve(xs):\n    return xs[0]\n"
STARTS = ("", "```python\n")
REPLIES = {
    "fences": "```\n", "fences with text": "```\nx\n", "statements": "x = 1\n", "defs": CODE, "tags": "[code]x[/code]",
    "open tags": "[code]x", "backticks": "`", "inline": "```x```y ", "escapes": "\x1b[1;", "osc": "\x1b]x",
    "thinking": "<think></think>", "open thinking": "<think>", "lines": "\n", "blanks": " ", "brackets": "(",
    "quotes": '"', "imports": "import os\n", "tildes": "~~~\n~~~~\n", "decorators": "@x\n",
    "bodies": "    return 1\n", "semicolons": "x;", "ends": "x```\n", "words": "word ", "indented defs": f"   {CODE}",
}  # fmt: skip
"""Units of a reply, each repeated after each of the starts."""
LEXEMES = ('r#"', "/*", '"""', 'R"a(', "'", '"', "#", "\n#a\\", "r##", " ", "\n", "//", "'\\", "x")
"""Units of a program in a language of braces."""
SOURCES = {
    "brackets": ("", "(", ""), "signs": ("", "-", "1"), "sums": ("1", "+1", ""), "attributes": ("a", ".b", ""),
    "lambdas": ("", "lambda:", "1"), "elifs": ("if x:\n  pass\n", "elif x:\n  pass\n", ""),
    "decorators": ("", "@x\n", ""), "quotes": ("", '"\\', ""), "open strings": ("'''", '"""', ""),
    "null": ("a\0", "b", ""), "surrogate": ('x = "\ud800"', "\n", ""), "digits": ("x = ", "9", ""),
    "blank": ("", " ", ""),
}  # fmt: skip
"""Start, unit and end of a Python program that no reader of trees should take on."""


def repeated(unit: str, length: int, start: str = "", end: str = "") -> str:
    """The unit again and again, `length` characters between start and end."""
    return start + (unit * (length // len(unit) + 1))[:length] + end
