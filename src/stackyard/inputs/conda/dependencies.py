"""The ``dependencies:`` list of an environment file: conda specs, ``pip:`` lists and mamba's ``sel(...)`` entries."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from stackyard.core.errors import InputError, Where
from stackyard.core.quoting import cut, quoted
from stackyard.inputs.conda import selectors
from stackyard.inputs.conda.matchspec import parse_matchspec
from stackyard.inputs.models import CondaRequirement
from stackyard.inputs.pip.requirements import Line, RequirementsReader
from stackyard.inputs.reading.yamlfile import Node


class DependencyReader:
    """Reads the list; collects conda requirements in `conda` and pip's in `pip`.

    Args:
        base_dir: the directory to which paths are relative.
        axes: matrix axes that selectors may name.
        strict: see `RequirementsReader`.
        notices: receives messages for the user.
        problems: receives errors.
    """

    def __init__(
        self, base_dir: Path, axes: Collection[str], strict: bool, notices: list[str], problems: list[InputError]
    ) -> None:
        self.base_dir, self.axes, self.notices, self.problems = base_dir, axes, notices, problems
        self.conda: list[CondaRequirement] = []
        self.pip = RequirementsReader(base_dir, strict=strict, problems=problems)
        self._lines: list[Line] = []
        self._pip_keys: list[Node] = []

    def read(self, node: Node | None) -> None:
        """Read the value of ``dependencies:``; nothing or null is an empty list, as for conda and mamba."""
        if node is None or node.is_null:
            return
        if node.kind != "sequence":
            self.problem(node, "`dependencies:` must be a list", "begin each package with `- ` on a line of its own")
            return
        for item in node.items:
            self._item(item, "")
        if self._lines:
            self.pip.read_lines(self._lines, node.where.file)
        self._notice_pip(node)

    def selector(self, node: Node) -> str:
        """The selector in the comment next to a value, or empty; a notice reports whether it applies or is ignored."""
        text = selectors.in_comment(node.comment)
        if not text:
            return ""
        if selectors.is_selector(text, self.axes):
            self.notice(node, f"{cut(node.text.strip()) or 'this list'} applies only if {cut(text)}")
            return text
        if selectors.looks_like_selector(text, self.axes):
            self.notice(node, f"the comment [{cut(text)}] is ignored: not every name in it is a platform or an axis")
        return ""

    def _item(self, item: Node, selector: str) -> None:
        selector = selectors.both(selector, self.selector(item) if item.kind == "scalar" else "")
        if item.kind == "mapping":
            for key, value in item.entries:
                self._entry(key, value, selector)
        elif item.kind == "sequence":
            self.problem(item, "nested list in `dependencies:`", "write each package as `- name` on the same level")
        elif isinstance(item.value, str):
            self._conda(item, selector)
        else:
            wrong = f": {cut(item.text)} is not a dependency" if item.text else ""
            self.problem(item, f"missing package name{wrong}", "write `- name` or remove the line")

    def _conda(self, item: Node, selector: str) -> None:
        try:
            self.conda.append(
                parse_matchspec(item.text, item.where, base_dir=self.base_dir, selector=selector, notices=self.notices)
            )
        except InputError as problem:
            self.problems.append(problem)

    def _entry(self, key: Node, value: Node, selector: str) -> None:
        condition = selectors.in_key(key.text)
        if condition is not None:
            try:
                selectors.check(condition, self.axes, where=key.where)
            except InputError as problem:
                self.problems.append(problem)
                return
            self.notice(key, f"{cut(value.text.strip()) or 'this list'} applies only if {cut(condition)}")
            for item in value.items if value.kind == "sequence" else (value,):
                self._item(item, selectors.both(selector, condition))
        elif key.text == "pip":
            self._pip_keys.append(key)
            own = self.selector(value if value.kind == "sequence" else key)
            self._pip(value, selectors.both(selector, own))
        else:
            self._unknown_entry(key, value)

    def _unknown_entry(self, key: Node, value: Node) -> None:
        if value.kind == "scalar" and not value.is_null:
            hint = f"write `- {cut(key.text)}={cut(value.text)}`; with a colon it is a mapping"
        else:
            hint = "only `pip:` and mamba's `sel(...)` are allowed here; write packages as `- name=version`"
        self.problem(key, f"{quoted(key.text)} is not a section of `dependencies:`", hint)

    def _pip(self, value: Node, selector: str) -> None:
        if value.is_null:
            return
        if value.kind != "sequence":
            self.problem(
                value, "`pip:` must be a list", "write each requirement as `- name` on a line of its own below it"
            )
            return
        for item in value.items:
            self._pip_item(item, selector)

    def _pip_item(self, item: Node, selector: str) -> None:
        if item.kind == "mapping":
            self._pip_mapping(item, selector)
        elif item.kind == "scalar" and isinstance(item.value, str):
            selector = selectors.both(selector, self.selector(item))
            for offset, text in enumerate(item.text.splitlines()):
                place = Where(item.where.file, item.where.line + offset, 1) if offset else item.where
                self._lines.append(Line(text, place, selector))
        else:
            shown = cut(item.text) or "nothing"
            hint = "write a requirement such as `- numpy==1.26`, or remove the line"
            self.problem(item, f"{shown} is not a pip requirement", hint)

    def _pip_mapping(self, item: Node, selector: str) -> None:
        for key, value in item.entries:
            condition = selectors.in_key(key.text)
            if condition is None:
                hint = f"write `- {cut(key.text)}=={cut(value.text)}`"
                if key.text.startswith("-") or not value.text:
                    hint = f"put the line in quotes: `- '{cut(f'{key.text}: {value.text}'.rstrip())}'`"
                self.problem(key, f"{quoted(key.text)} with a colon is a mapping, not a pip requirement", hint)
                continue
            self.notice(key, f"{cut(value.text.strip()) or 'this list'} applies only if {cut(condition)}")
            for inner in value.items if value.kind == "sequence" else (value,):
                self._pip_item(inner, selectors.both(selector, condition))

    def _notice_pip(self, node: Node) -> None:
        if len(self._pip_keys) > 1:
            self.notice(self._pip_keys[1], "second `pip:` list: both are joined (conda keeps only the last)")
        if self._pip_keys and node.items[-1].get("pip") is None:
            self.notice(
                self._pip_keys[-1],
                "`pip:` is not the last entry: its packages are still installed after all conda packages",
            )
        if self._lines and not any(requirement.name in ("pip", "uv") for requirement in self.conda):
            self.notice(self._pip_keys[0], "pip is not listed as a conda package: not needed here (conda would add it)")

    def problem(self, node: Node, message: str, hint: str) -> None:
        """Add an error at a place."""
        self.problems.append(InputError(message, where=node.where, hint=hint))

    def notice(self, node: Node, text: str) -> None:
        """Add a message for the user about a place."""
        self.notices.append(f"{node.where.in_short}: {text}")
