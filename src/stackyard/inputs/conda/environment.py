"""Parses environment.yml with conda's semantics; also the ``environment:`` mapping of a stack.yaml.

Every entry of a file becomes part of the `Environment`, a notice or an error with its place: nothing is dropped
silently. All problems of a file are reported at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from stackyard.core import grammar
from stackyard.core.errors import InputError, Where
from stackyard.core.hints import did_you_mean, nearest
from stackyard.core.quoting import cut, quoted
from stackyard.host.machine.platforms import BUILT_FOR, PLATFORMS
from stackyard.inputs.conda import selectors
from stackyard.inputs.conda.dependencies import DependencyReader
from stackyard.inputs.models import Environment
from stackyard.inputs.pip.requirements import read_requirements
from stackyard.inputs.reading.paths import absolute
from stackyard.inputs.reading.yamlfile import Document, Node, raise_problems, read_yaml

KEYS = (
    *("name", "prefix", "channels", "dependencies", "variables", "platforms"),
    *("category", "pip-repositories", "allow-pypi-requests"),
)
"""The keys of an environment file: conda's own, and those that mamba and conda-lock add."""

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[^}]*)\}|(?P<plain>\w+))")
_RESERVED = ("PATH",)


def load_environment(path: Path, *, axes: Collection[str] = (), strict: bool = True) -> Environment:
    """Read an environment.yml or a requirements.txt; its content decides which of the two it is.

    Args:
        path: the file.
        axes: names of matrix axes that selectors may use in addition to platforms.
        strict: reject included requirement files that do not exist. Otherwise they are listed in ``missing``.

    Raises:
        InputError: it cannot be read or is invalid, with line, column and a hint; `ManyErrors` for several problems.
    """
    from stackyard.inputs.load import kind_of

    if kind_of(path) == "requirements":
        return read_requirements(path, strict=strict)
    return environment_of(read_yaml(path), path.resolve().parent, axes=axes, strict=strict)


def environment_of(
    document: Document, base_dir: Path, *, axes: Collection[str] = (), strict: bool = True
) -> Environment:
    """The environment of a whole document. Arguments and errors as for `load_environment`."""
    if document.root is None or document.root.is_null:
        hint = "write at least `dependencies:` and a list of packages"
        raise InputError("the file is empty", where=Where(document.file), hint=hint)
    environment = parse_environment(document.root, base_dir, axes=axes, strict=strict)
    own = str(Path(document.file).resolve())
    notices = environment.notices
    if document.root.get("dependencies") is None and document.root.get("variables") is None:
        notices = (*notices, f"{document.file}: no dependencies: the environment is empty")
    return environment.model_copy(update={"files": (own, *environment.files), "notices": notices})


def parse_environment(node: Node, base_dir: Path, *, axes: Collection[str] = (), strict: bool = True) -> Environment:
    """The environment that a mapping of a YAML file describes: a whole file's, or one inside a stack.yaml.

    Args:
        node: the mapping; places in errors and requirements are its own file's.
        base_dir: the directory to which paths are relative (where conda would run pip).
        axes: names of matrix axes that selectors may use in addition to platforms.
        strict: as for `load_environment`.

    Raises:
        InputError: conda or pip does not accept it; `ManyErrors` for several problems.
    """
    if node.kind != "mapping":
        hint = "begin with `dependencies:` and indent the packages below it"
        raise InputError(
            "an environment must be a mapping with keys such as `dependencies:`", where=node.where, hint=hint
        )
    return _Reader(node, base_dir, axes, strict).read()


def channel_variables(channel: str) -> tuple[str, ...]:
    """The names of the variables in a channel."""
    return tuple(match["braced"] or match["plain"] for match in _VARIABLE.finditer(channel))


def channels_for(environment: Environment, platform: str, axes: Mapping[str, str]) -> tuple[str, ...]:
    """The channels whose selector is true, in order of priority, with variables as written."""
    chosen = environment.channel_selectors
    return tuple(name for name in environment.channels if selectors.holds(chosen.get(name, ""), platform, axes))


def variables_for(environment: Environment, platform: str, axes: Mapping[str, str]) -> dict[str, str]:
    """The variables whose selector is true, as written."""
    chosen = environment.variable_selectors
    return {k: v for k, v in environment.variables.items() if selectors.holds(chosen.get(k, ""), platform, axes)}


def _as_url(channel: str, base_dir: Path) -> str:
    """A channel given as a directory as a ``file://`` URL; names and URLs are unchanged."""
    if not channel.startswith(("/", "./", "../", "~/")) and channel not in (".", ".."):
        return channel
    return absolute(channel, base_dir).as_uri()


class _Reader:
    """Reads one mapping; each key has a method."""

    def __init__(self, node: Node, base_dir: Path, axes: Collection[str], strict: bool) -> None:
        self.node, self.axes = node, axes
        self.problems: list[InputError] = []
        self.notices: list[str] = []
        self.dependencies = DependencyReader(base_dir, axes, strict, self.notices, self.problems)
        self.channel_selectors: dict[str, str] = {}
        self.variable_selectors: dict[str, str] = {}
        self.channel_places: dict[str, Where] = {}

    def read(self) -> Environment:
        self._unknown_keys()
        fields: dict[str, Any] = {
            "name": self._text("name"),
            "prefix": self._prefix(),
            "category": self._text("category") or "",
            "variables": self._variables(),
            "platforms": self._platforms(),
        }
        channels = self._channels()
        self.dependencies.read(self.node.get("dependencies"))
        self._repositories()
        raise_problems(self.problems)
        return Environment(
            **fields,
            channels=tuple(name for name in channels if name != "nodefaults"),
            nodefaults="nodefaults" in channels,
            channel_selectors=self.channel_selectors,
            variable_selectors=self.variable_selectors,
            conda=tuple(self.dependencies.conda),
            channel_places=self.channel_places,
            **self.dependencies.pip.fields(*self.notices),
        )

    def _unknown_keys(self) -> None:
        """conda warns about unknown keys and continues; a file without dependencies is an error here."""
        has_content = self.node.get("dependencies") is not None or self.node.get("variables") is not None
        unknown = [key for key, _ in self.node.entries if key.text not in KEYS]
        close = {key.text: nearest(key.text.lower(), KEYS) for key in unknown}
        if not has_content and not any(close.values()) and len(unknown) == len(self.node.entries):
            hint = "write at least `dependencies:` and a list of packages"
            self.dependencies.problem(self.node, "not an environment file: none of its keys is known", hint)
            return
        for key in unknown:
            meant = close[key.text]
            hint = f"did you mean {meant[0]!r}?" if meant else f"known keys: {', '.join(KEYS)}"
            if key.text == "pip":
                hint = "write it as an entry of `dependencies:`, `- pip:`"
            message = f"unknown key {quoted(key.text)}"
            if has_content:
                self.dependencies.notice(key, f"{message} ignored, as by conda; {hint}")
            else:
                self.problems.append(InputError(message, where=key.where, hint=hint))

    def _text(self, key: str) -> str | None:
        node = self.node.get(key)
        if node is None or node.is_null:
            return None
        if node.kind != "scalar":
            self.dependencies.problem(node, f"`{key}:` must be one word", f"write `{key}: my-{key}`")
            return None
        return node.text.strip() or None

    def _prefix(self) -> str | None:
        prefix = self._text("prefix")
        node = self.node.key("prefix")
        if prefix and node:
            self.dependencies.notice(node, f"the prefix {prefix} is ignored: revisions have paths of their own")
        return prefix

    def _list(self, key: str, example: str) -> tuple[Node, ...]:
        node = self.node.get(key)
        if node is None or node.is_null:
            return ()
        if node.kind != "sequence":
            self.dependencies.problem(
                node, f"`{key}:` must be a list", f"write `{key}: [{cut(node.text.strip()) or example}]`"
            )
            return ()
        return node.items

    def _channels(self) -> list[str]:
        names: list[str] = []
        for item in self._list("channels", "conda-forge"):
            if item.kind != "scalar" or not isinstance(item.value, str) or not item.text.strip():
                self.dependencies.problem(
                    item, "a channel must be a name or a URL", "write `- conda-forge` or `- https://host/channel`"
                )
                continue
            written = item.text.strip()
            name = written if channel_variables(written) else _as_url(written, self.dependencies.base_dir)
            self.channel_places.setdefault(name, item.where)
            selector = self.dependencies.selector(item)
            if selector and name not in names:
                self.channel_selectors[name] = selector
            elif not selector:
                self.channel_selectors.pop(name, None)
            if name not in names:
                names.append(name)
            self._channel_notices(item, name)
        return names

    def _channel_notices(self, item: Node, name: str) -> None:
        for variable in channel_variables(name):
            if variable not in os.environ:
                self.dependencies.notice(item, f"the channel {cut(name)} needs ${cut(variable)}, which is not set here")

    def _variables(self) -> dict[str, str]:
        node = self.node.get("variables")
        if node is None or node.is_null:
            return {}
        if node.kind != "mapping":
            self.dependencies.problem(
                node, "`variables:` must be a mapping", "write `NAME: value` below it, one per line"
            )
            return {}
        read = {key.text: self._variable(key, value) for key, value in node.entries}
        return {name: value for name, value in read.items() if value is not None}

    def _variable(self, key: Node, value: Node) -> str | None:
        if value.kind != "scalar":
            self.dependencies.problem(
                value, f"the variable {cut(key.text)} must have one value", "put the value in quotes"
            )
            return None
        if key.text in _RESERVED:
            self.dependencies.notice(key, f"{cut(key.text)} is reserved and ignored, as by conda")
            return None
        self._check(grammar.LOADED, key.text, key)
        if value.is_null:
            self.dependencies.notice(key, f"{cut(key.text)} has no value and is ignored; write '' for an empty value")
            return None
        selector = self.dependencies.selector(value)
        if selector:
            self.variable_selectors[key.text] = selector
        text = str(value.value)
        self._check(grammar.VALUE, text, value)
        if text != value.text:
            self.dependencies.notice(
                value,
                f"{cut(key.text)} is {quoted(text)}, as YAML and conda read {cut(value.text)}; "
                "quote it to keep it as written",
            )
        return text

    def _check(self, rule: grammar.Grammar, text: str, node: Node) -> None:
        try:
            rule(text)
        except grammar.GrammarError as error:
            self.dependencies.problem(node, str(error), error.hint)

    def _platforms(self) -> tuple[str, ...]:
        names: list[str] = []
        for item in self._list("platforms", "linux-64"):
            name = item.text.strip()
            if item.kind != "scalar" or name not in PLATFORMS:
                hint = did_you_mean(name, PLATFORMS, f"known: {', '.join(BUILT_FOR)}, …", shown=repr)
                self.dependencies.problem(item, f"{quoted(name or item.value)} is not a platform", hint)
            names.append(name)
        return tuple(dict.fromkeys(names))

    def _repositories(self) -> None:
        """conda-lock's keys: more package indexes, and whether PyPI itself may be used. ``$NAME`` becomes ``${NAME}``,
        the one form that pip's own options have."""
        items = self._list("pip-repositories", "https://host/simple")
        channels = [_VARIABLE.sub(r"${\g<braced>\g<plain>}", item.text.strip()) for item in items]
        allowed = self.node.get("allow-pypi-requests")
        options = self.dependencies.pip
        if allowed is not None and allowed.value is False:
            if channels:
                options.add_option("--index-url", channels.pop(0))
            else:
                options.add_option("--no-index", "")
        for url in channels:
            options.add_option("--extra-index-url", url)
