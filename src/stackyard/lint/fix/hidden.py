"""Removes secrets from a batch script, since the output of `lint --fix` is stored, shown and sent on.

A secret that stands in the text is replaced before anything is read from it, so that nothing can repeat it: neither
a note nor a line of the job file. A value that is computed, ``TOKEN=$(cat file)``, stands elsewhere and stays.
"""

from __future__ import annotations

import re
from itertools import pairwise

from stackyard.core.secrets import HIDDEN, is_secret, is_secret_name, redacted
from stackyard.lint.shell.words import unknown

SECRET = unknown(HIDDEN)
"""What stands for a secret: like a value that is known only at run time."""
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'"
_PLAIN = r"\\.|[^\s;&|()<>\"'`\\]|\"[^\"\s]*\"|'[^'\s]*'"
_SET = re.compile(rf"(?<![\w$.-])([A-Za-z_]\w*)(\+?=)((?:{_QUOTED})?(?:{_PLAIN})*)", re.S)
_FIELD = re.compile(r"((?:^|[{,])[ \t]*[\"']?)([A-Za-z_]\w*)([\"']?[ \t]*:[ \t]+[\"']?)([^\s\"',}]+)", re.M)
_OPTION = re.compile(r"(?<![\w-])(--?)([A-Za-z][\w-]*)(=[\"']?|[ \t]+[\"']?)([\w.+=-]{8,})")
_LOGIN = re.compile(r"(\blogin\b(?:[ \t]+--?[\w=-]+)*[ \t]+)([A-Za-z0-9_-]{20,})")
_VARIABLE = re.compile(r"\$\{\w+:?[-=]([^}$]+)\}")
_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"';|&]+)"
_DEFAULT = re.compile(r"(\$\{)([A-Za-z_]\w*)(:?[-=])([^}$\n]+)")
_ITEM = re.compile(rf"(\[[\"']?)([A-Za-z_]\w*)([\"']?\][ \t]*=[ \t]*)({_VALUE})")
_DOTTED = re.compile(
    rf"((?<![\w$/.-])[+~]?-{{0,2}}(?:[A-Za-z_][\w-]{{0,60}}\.){{1,9}})([A-Za-z_][\w-]{{0,60}})(=|[ \t]+)({_VALUE})"
)
_CSH = re.compile(rf"(\bsetenv[ \t]+)([A-Za-z_]\w*)([ \t]+)({_VALUE})")
_INI = re.compile(rf"^([ \t]*)([A-Za-z_][\w.-]*)([ \t]*[=:][ \t]*)({_VALUE})[ \t]*$", re.M)
_GIVEN = tuple(
    re.compile(pattern)
    for pattern in (
        r"(\bsshpass[ \t]+-p[ \t]*)([^\s\"']+|\"[^\"\n]*\"|'[^'\n]*')",
        r"(\bmysql\w*\b[^\n|;&]{0,200}?[ \t]-p)([^\s]+)",
        r"(\bredis-cli\b[^\n|;&]{0,200}?[ \t]-a[ \t]+)(\S+)",
        r"(\blogin\b[^\n|;&]{0,200}?[ \t]-p[ \t]+)(\S+)",
        r"((?:\b|\\n)login(?:\s|\\n)+\S+?(?:\s|\\n)+password(?:\s|\\n)+)([^\s\\\"']+)",
        r"(\b(?:curl|wget)\b[^\n|;&]{0,200}?[ \t](?:-u|--user|--proxy-user|-U)[ =]?[\"']?[^\s:\"']+:)([^\s\"'@]+)",
        r"((?i:--(?:http-)?passw(?:or)?d(?:=|[ \t]+)))(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'$-]\S*)",
    )
)
"""Programs that take a password in their words: what stands before it, and it."""
_CONTEXT = re.compile(
    r"(?i)token(?!i[sz])|secret|passw|api[_-]?key|credential|authorization|bearer|(?<![a-z])(?:key|login)(?![a-z])"
)
_DRAWN = re.compile(r"(?<![\w$/.-])[A-Za-z0-9_+=-]{16,}(?![\w/])")


def without_secrets(text: str) -> str:
    """The text of a script with a marker for each literal secret; the number of lines is unchanged."""
    text = _SET.sub(_setting, text)
    text = _FIELD.sub(_field, text)
    text = _OPTION.sub(_option, text)
    text = _LOGIN.sub(rf"\g<1>{SECRET}", text)
    for named in (_DEFAULT, _ITEM, _DOTTED, _CSH, _INI):
        text = named.sub(_named, text)
    for secret in _GIVEN:
        text = secret.sub(_password, text)
    rows = text.split("\n")
    joined = [number > 0 and rows[number - 1].endswith("\\") for number in range(len(rows))]
    near = [_is_near(row, rows[number - 1] if joined[number] else "") for number, row in enumerate(rows)]
    return "\n".join(_DRAWN.sub(_drawn, _by_form(row)) if near[n] else _by_form(row) for n, row in enumerate(rows))


def _is_near(row: str, before: str) -> bool:
    """Whether a row, or the one that it continues, mentions a secret."""
    return bool(_CONTEXT.search(row) or _CONTEXT.search(before))


def _named(match: re.Match[str]) -> str:
    """A value after a name that suggests a secret: ``${TOKEN:=WORD}``, ``["TOKEN"] = "WORD"``, ``a.api_key=WORD``."""
    start, name, sign, value = match.groups()
    plain = value.strip("\"'")
    hidden = is_secret_name(name.replace("-", "_")) and not re.search("[$`]", plain) and SECRET not in plain
    hidden = hidden and bool(sign.strip() or start.startswith(("-", "setenv")))
    hidden = hidden and not re.fullmatch(r"[\d.]{1,8}|true|false|yes|no|none|null", plain, re.I)
    return f"{start}{name}{sign}{SECRET}" if hidden and plain and (len(plain) > 3) else match[0]


def _password(match: re.Match[str]) -> str:
    computed = match[2].lstrip('"').startswith("$") or SECRET in match[2]
    return match[0] if computed else f"{match[1]}{SECRET}"


def _drawn(match: re.Match[str]) -> str:
    """A random-looking word, which often changes between digits, lower and upper case."""
    kinds = ["0" if char.isdigit() else "a" if char.islower() else "A" for char in match[0] if char.isalnum()]
    changes = sum(one != other for one, other in pairwise(kinds))
    return SECRET if changes >= 0.35 * len(kinds) and len(set(kinds)) > 1 else match[0]


def _inner(match: re.Match[str]) -> str:
    secret = is_secret_name(match[1]) and match[3] and "$" not in match[3]
    return f"{match[1]}{match[2]}{SECRET}" if secret else match[0]


def _setting(match: re.Match[str]) -> str:
    name, sign, value = match.groups()
    literal = _VARIABLE.sub(r"\1", value).strip("\"'").replace("\\$", "")
    literal = literal.replace("$", "") if value.startswith("'") and value.endswith("'") else literal
    plain = re.fullmatch(r"[\d.]{1,8}|true|false|yes|no|none", literal, re.I)
    keyword = re.search(r"(?:^|_)key$", name) and re.fullmatch("[a-z_]{3,}", literal)  # loss_key=gaussian
    count = keyword or (plain and re.search(r"tokens?$", name, re.I))  # MAX_TOKEN=4096, USE_AUTH_TOKEN=true
    computed = re.search("[$`]", literal)  # from others; if not, `_by_form` finds it
    if not literal or count or computed or not is_secret(name, literal):
        return f"{name}{sign}{_SET.sub(_inner, value)}" if "=" in value else match[0]  # "A=1,TOKEN=word"
    return f"{name}{sign}{SECRET}" + "\n" * value.count("\n")


def _field(match: re.Match[str]) -> str:
    """``api_key: WORD`` in a file that the script writes."""
    hidden = is_secret_name(match[2]) and "$" not in match[4]
    return f"{match[1]}{match[2]}{match[3]}{SECRET}" if hidden else match[0]


def _option(match: re.Match[str]) -> str:
    """``--api-key WORD``, unless the word is a common one: ``--eos_token end`` is kept."""
    drawn = re.search(r"\d", match[4]) and re.search(r"[A-Za-z]", match[4])
    hidden = drawn and is_secret_name(match[2].replace("-", "_"))
    return f"{match[1]}{match[2]}{match[3]}{SECRET}" if hidden else match[0]


def _by_form(row: str) -> str:
    """A line without logins, tokens and keys that are recognised by their form."""
    plain = redacted(row)
    return row if plain == row else plain.replace(HIDDEN, SECRET)
