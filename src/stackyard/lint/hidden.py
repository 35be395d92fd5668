"""A batch script without its secrets: what `lint --fix` writes is kept, shown and sent on.

A secret that stands in the text is replaced before anything is read from it, so that nothing can repeat it: neither
a note nor a line of the job file. A value that is computed, ``TOKEN=$(cat file)``, stands elsewhere and stays.
"""

from __future__ import annotations

import re

from stackyard.host.secrets import HIDDEN, is_secret, is_secret_name, redacted
from stackyard.lint.words import unknown

SECRET = unknown(HIDDEN)
"""What stands for a secret: like a value that is known only at run time."""
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'"
_PLAIN = r"\\.|[^\s;&|()<>\"'`\\]|\"[^\"\s]*\"|'[^'\s]*'"
_SET = re.compile(rf"(?<![\w$.-])([A-Za-z_]\w*)(\+?=)((?:{_QUOTED})?(?:{_PLAIN})*)", re.S)
_FIELD = re.compile(r"((?:^|[{,])[ \t]*[\"']?)([A-Za-z_]\w*)([\"']?[ \t]*:[ \t]+[\"']?)([^\s\"',}]+)", re.M)
_OPTION = re.compile(r"(?<![\w-])(--?)([A-Za-z][\w-]*)(=[\"']?|[ \t]+[\"']?)([\w.+=-]{8,})")
_LOGIN = re.compile(r"(\blogin\b(?:[ \t]+--?[\w=-]+)*[ \t]+)([A-Za-z0-9_-]{20,})")
_VARIABLE = re.compile(r"\$\{\w+:?[-=]([^}$]+)\}")


def without_secrets(text: str) -> str:
    """The text of a script, of as many lines, with a marker for each secret that stands in it."""
    text = _SET.sub(_setting, text)
    text = _FIELD.sub(_field, text)
    text = _OPTION.sub(_option, text)
    text = _LOGIN.sub(rf"\g<1>{SECRET}", text)
    return "\n".join(_by_form(row) for row in text.split("\n"))


def _setting(match: re.Match[str]) -> str:
    name, sign, value = match.groups()
    literal = _VARIABLE.sub(r"\1", value).strip("\"'")
    count = re.fullmatch(r"[\d.]{1,8}|true|false|yes|no|none", literal, re.I) and re.search(
        r"tokens?$", name, re.I
    )  # MAX_TOKEN=4096, USE_AUTH_TOKEN=true
    if not literal or count or "$" in literal or not is_secret(name, literal):  # computed from others; else `_by_form`
        return match[0]
    return f"{name}{sign}{SECRET}" + "\n" * value.count("\n")


def _field(match: re.Match[str]) -> str:
    """``api_key: WORD`` in a file that the script writes."""
    hidden = is_secret_name(match[2]) and "$" not in match[4]
    return f"{match[1]}{match[2]}{match[3]}{SECRET}" if hidden else match[0]


def _option(match: re.Match[str]) -> str:
    """``--api-key WORD``, where the word is none that a program knows: ``--eos_token end`` stays."""
    drawn = re.search(r"\d", match[4]) and re.search(r"[A-Za-z]", match[4])
    hidden = drawn and is_secret_name(match[2].replace("-", "_"))
    return f"{match[1]}{match[2]}{match[3]}{SECRET}" if hidden else match[0]


def _by_form(row: str) -> str:
    """A line without the logins, tokens and keys that show by their form."""
    plain = redacted(row)
    return row if plain == row else plain.replace(HIDDEN, SECRET)
