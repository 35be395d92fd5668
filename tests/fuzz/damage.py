"""Damaged files: a good one, with a few changes of the kinds that people, disks and attackers make.

Changes are drawn by hypothesis, so that a failing input is made small and is tried again by the next run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import strategies as st

WORDS = (
    "", "null", "~", "true", "-1", "0", "1e999", "nan", "9" * 5000, "0x" + "f" * 300, "1_0", "3.10", "2026-11-22",
    "[]", "{}", "[[]]", "[1, [2, [3]]]", "{a: {b: c}}", "{ a = { b = 1 } }", "[" * 300, "{a: " * 300, "'", '"', "'''",
    '"""', "&a [*a]", "*a", "<<: *a", "!!python/object:os.system x", "| \n  x", ">-\n  x", "\\ud800", '"\\ud800"',
    '"\\u0000"', "é\u2028\x85", "\u202e", "${HOME}", "$(id)", "`id`", "{{ x }}", "{% if x %}", "# [linux]", "%2f..%2f",
    "../" * 40, "/" * 4000, "x" * 5000, " " * 5000, "a." * 2000, "a-" * 2000, "a,b;" * 800, "(" * 2000, "https://[",
    "https://u:p@h:99999/x", "file:///%00", "git+https://", "name @ ", "pip: ", "-r x", "a==1; python_version<",
    "a>=1,<,", "*", "=*=", "@", "::", "linux-64", "18446744073709551616", "-9223372036854775809", "100000000", "1e8",
    "00:00:00", "n[1-99999999]", "n[1-", "^$(a+)+",
)  # fmt: skip
"""Values that readers have failed on: wrong kinds, deep and long ones, other languages' syntax."""

_LINE = rb"(?m)^([ \t]*(?:- )?[\w\"'. /-]{1,60}[:=] ?|[ \t]*- )(.*)$"
_INSIDE = rb"([\[,:] ?)(\"[^\"\n]*\"|-?\d+|true|false|null|\[\]|\{\})"
_VALUE = re.compile(_LINE + rb"|" + _INSIDE)
_MOST = 200_000


def damaged(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Good files with one to four changes each."""
    changes = st.lists(st.one_of(_bytes(), _values(), _slices(seeds)), min_size=1, max_size=4)
    return st.builds(_changed, st.sampled_from(list(seeds)), changes)


_Change = tuple[str, int, int, bytes]


def _bytes() -> st.SearchStrategy[_Change]:
    """A few bytes become others: a flipped bit, a NUL, half a character."""
    known = st.sampled_from([b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\t", b"\r", b"\n", b":", b'"', b"\\"])
    content = st.one_of(st.binary(max_size=3), known)
    return st.tuples(st.just("bytes"), _place(), st.integers(0, 3), content)


def _values() -> st.SearchStrategy[_Change]:
    """One value of the file becomes one of another kind."""
    return st.tuples(st.just("value"), _place(), st.just(0), st.sampled_from(WORDS).map(lambda text: text.encode()))


def _slices(seeds: Sequence[bytes]) -> st.SearchStrategy[_Change]:
    """A part is cut, doubled many times, or comes from another file."""
    other = st.sampled_from(list(seeds)).flatmap(lambda seed: st.just(seed[: len(seed) // 2]))
    return st.one_of(
        st.tuples(st.just("cut"), _place(), st.integers(1, 400), st.just(b"")),
        st.tuples(st.just("end"), _place(), st.just(0), st.just(b"")),
        st.tuples(st.just("repeat"), _place(), st.integers(1, 300), st.just(b"")),
        st.tuples(st.just("bytes"), _place(), st.just(0), other),
    )


def _place() -> st.SearchStrategy[int]:
    return st.integers(0, 1 << 16)


def _changed(data: bytes, changes: Sequence[_Change]) -> bytes:
    for how, place, length, content in changes:
        data = _change(data, how, place, length, content)[:_MOST]
    return data


def _change(data: bytes, how: str, place: int, length: int, content: bytes) -> bytes:
    if how == "value":
        return _with_value(data, place, content)
    at = place % (len(data) + 1)
    if how == "end":
        return data[:at]
    if how == "repeat":
        return data[:at] + data[at : at + length] * (2 + place % 200) + data[at:]
    return data[:at] + content + data[at + length :]


def _with_value(data: bytes, place: int, content: bytes) -> bytes:
    """The file with one of its values replaced; a text for JSON or TOML is put in quotes at every second place."""
    found = list(_VALUE.finditer(data))
    if not found:
        return data
    match = found[place % len(found)]
    group = 2 if match.group(2) is not None else 4
    start, end = match.span(group)
    if match.group(group)[:1] == b'"' and place // len(found) % 2:
        content = b'"' + content.replace(b'"', b"'").replace(b"\n", b" ") + b'"'
    return data[:start] + content + data[end:]
