"""The options of pip's requirements format: one table, parsed as by pip's own option parser.

Long options take ``--option value`` and ``--option=value`` and may be shortened as long as they stay unambiguous; short
ones take ``-f value`` and ``-fvalue``. Words are split as by a shell, so values may be quoted.
"""

from __future__ import annotations

import shlex
from dataclasses import field

from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.core.quoting import cut, quoted
from stackyard.inputs.models import PipOptions

_NAMES = (
    "--requirement", "--constraint", "--editable", "--index-url", "--pypi-url", "--extra-index-url", "--find-links",
    "--no-index", "--no-binary", "--only-binary", "--prefer-binary", "--require-hashes", "--no-require-hashes", "--pre",
    "--all-releases", "--only-final", "--trusted-host", "--use-feature", "--hash", "--config-settings",
    "--config-setting", "--global-option", "--build-option",
)  # fmt: skip
"""The first three name files and requirements; `PER_REQUIREMENT` has those of the requirement on the same line."""
_SWITCHES = ("--no-index", "--prefer-binary", "--require-hashes", "--no-require-hashes", "--pre")
"""Those that take no value."""
_SHORT = {
    "-r": "--requirement", "-c": "--constraint", "-e": "--editable", "-i": "--index-url", "-f": "--find-links",
    "-C": "--config-settings",
}  # fmt: skip
PER_REQUIREMENT = ("--hash", "--config-settings", "--config-setting", "--global-option", "--build-option")
ON_ANY_LINE = ("--no-binary", "--only-binary", "--all-releases", "--only-final")
"""Those that pip applies to everything also where they stand after a requirement."""
_GONE = {
    "--install-option": "removed from pip; use --config-settings",
    "--process-dependency-links": "removed from pip; write `name @ url`",
    "--no-use-wheel": "removed from pip; write --no-binary :all:",
    **dict.fromkeys(
        ("--allow-external", "--allow-all-external", "--allow-unverified", "--use-wheel"),
        "removed from pip; remove the line",
    ),
}
_REMOVE = "it is an option of the command `pip install`: remove it"
_OF_THE_COMMAND = {
    **dict.fromkeys(("--user", "--no-cache-dir", "--force-reinstall", "--ignore-installed", "-I"), _REMOVE),
    **dict.fromkeys(("--target", "-t", "--prefix", "--break-system-packages"), _REMOVE),
    **dict.fromkeys(("--quiet", "-q", "--verbose", "-v", "--timeout"), _REMOVE),
    **dict.fromkeys(("--upgrade", "-U"), f"{_REMOVE}; `stackyard lock --update` renews what is locked"),
    "--no-deps": f"{_REMOVE}; what packages require is always installed",
    "--no-build-isolation": f"{_REMOVE}, and list the package below `build: packages:` of a stack.yaml",
}
"""Options of pip that a requirements file does not have, and what to do instead."""


def split_line(line: str) -> tuple[str, str]:
    """The requirement of a line and its options: all from the first word that begins with a dash."""
    words = line.split(" ")
    at = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
    return " ".join(words[:at]).strip(), " ".join(words[at:]).strip()


def parse_options(text: str, place: Where) -> tuple[list[tuple[str, str]], list[str]]:
    """The options of one line in their order, as long name and value (empty for a switch), and the words between
    them that belong to no option, which pip ignores.

    Raises:
        InputError: an option that pip does not know, an unclosed quote, a value that is missing or too much.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{quoted(text)}: {error}", where=place, hint="close the quotes") from error
    options: list[tuple[str, str]] = []
    ignored: list[str] = []
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            ignored.append(word)
            continue
        name, value, glued = _split_word(word, place)
        if name in _SWITCHES:
            if glued:
                raise InputError(f"{name} takes no value", where=place, hint=f"write {name}")
        elif not glued:
            if not words:
                raise InputError(f"missing value of {name}", where=place, hint=f"write {name} VALUE")
            value = words.pop(0)
        options.append((name, value))
    return options, ignored


def _split_word(word: str, where: Where) -> tuple[str, str, bool]:
    if not word.startswith("--"):
        name = _SHORT.get(word[:2])
        if not name:
            raise _no_such(word[:2], where)
        return name, word[2:], len(word) > 2
    head, glued, value = word.partition("=")
    if head in _NAMES:
        return head, value, bool(glued)
    matches = [name for name in _NAMES if name.startswith(head)]
    if len(matches) != 1 or head == "--":
        raise _no_such(head, where)
    return matches[0], value, bool(glued)


def _no_such(word: str, where: Where) -> InputError:
    if word in _GONE:
        return InputError(f"pip no longer has the option {cut(word)}", where=where, hint=_GONE[word])
    if word in _OF_THE_COMMAND:
        return InputError(f"pip does not accept {word} in a requirements file", where=where, hint=_OF_THE_COMMAND[word])
    hint = f"known options: {', '.join(_NAMES)}"
    return InputError(f"unknown option {cut(word)} in a requirements file", where=where, hint=hint)


@dataclass
class OptionsBuilder:
    """Collects the options of all lines with pip's semantics: the last index wins, formats exclude each other."""

    values: dict[str, object] = field(default_factory=dict)
    no_binary: set[str] = field(default_factory=set)
    only_binary: set[str] = field(default_factory=set)
    lists: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, value: str) -> None:
        """Add one option; those that name files or requirements are handled by the reader."""
        lists = {
            "--extra-index-url": "extra_index_urls",
            "--find-links": "find_links",
            "--trusted-host": "trusted_hosts",
            "--use-feature": "use_features",
            "--all-releases": "all_releases",
            "--only-final": "only_final",
        }
        switches = {"--no-index": "no_index", "--pre": "pre", "--prefer-binary": "prefer_binary"}
        if name in lists:
            split = value.split(",") if name in ("--use-feature", "--all-releases", "--only-final") else [value]
            self.lists.setdefault(lists[name], []).extend(part.strip() for part in split if part.strip())
        elif name in switches:
            self.values[switches[name]] = True
        elif name in ("--index-url", "--pypi-url"):
            self.values["index_url"] = value
        elif name in ("--require-hashes", "--no-require-hashes"):
            self.values["require_hashes"] = name == "--require-hashes"
        elif name == "--no-binary":
            exclusive(value, self.no_binary, self.only_binary)
        elif name == "--only-binary":
            exclusive(value, self.only_binary, self.no_binary)

    def build(self) -> PipOptions:
        """The options of all lines."""
        lists = {name: tuple(dict.fromkeys(values)) for name, values in self.lists.items()}
        formats = {"no_binary": tuple(sorted(self.no_binary)), "only_binary": tuple(sorted(self.only_binary))}
        return PipOptions.model_validate({**self.values, **lists, **formats})


def exclusive(value: str, target: set[str], other: set[str], *, keeps: bool = False) -> None:
    """Apply pip's rules: ``:all:`` and ``:none:`` replace earlier names; a name added here is removed there.

    Args:
        keeps: with ``:all:``, keep the names of the other list: they are read separately, and may come later.
    """
    for name in filter(None, map(str.strip, value.split(","))):
        if name == ":none:":
            target.clear()
        elif name == ":all:":
            if not keeps:
                other.clear()
            other.discard(":all:")
            target.clear()
            target.add(":all:")
        else:
            other.discard(canonical(name))
            target.add(canonical(name))
