"""Reads site.yaml, and merges its values into a stack.

A machine without a site.yaml is a site too: the defaults of `models.Site`; platform, C library, driver and cores are
those of the machine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, Where
from stackyard.core.quoting import quoted
from stackyard.inputs.conda.matchspec import parse_matchspec
from stackyard.inputs.reading.paths import with_home
from stackyard.inputs.reading.validate import plain, unknown_key, validate
from stackyard.inputs.reading.yamlfile import Document, Node, raise_problems, read_yaml
from stackyard.inputs.sites.sitemodels import Overrides, Site
from stackyard.inputs.stacks import expand
from stackyard.inputs.stacks.naming import check_template
from stackyard.inputs.stacks.newest import end_of
from stackyard.inputs.stacks.stackfile import StackFile

_TYPED = (("condarc", "extra"),)


def load_site(file: Path) -> Site:
    """Read one site.yaml. `settings.Settings` determines which one is in force.

    Raises:
        InputError: the file does not exist or is invalid; all problems at once, each with its place.
    """
    document = read_yaml(file)
    problems: list[InputError] = []
    if document.root is not None and document.root.kind != "mapping":
        hint = "write `key: value` lines; `stackyard schema site` has all keys"
        raise InputError("a site must be a mapping", where=document.root.where, hint=hint)
    data = plain(document.root, _TYPED) or {}
    if "file" in data:
        problems.append(unknown_key(("file",), set(Site.model_fields) - {"file"}, document.key_where("file")))
    site = validate(Site, data, document, problems)
    if site is not None:
        _check(site, document, problems)
    raise_problems(problems)
    assert site is not None
    mirror = site.mirror if "://" in site.mirror else str(file.parent / with_home(site.mirror)) if site.mirror else ""
    changes = {
        "file": str(file),
        "mirror": mirror,
        "pip": _pip(site, file.parent),
        "launch": _launch(site, file.parent),
        "signatures": _signatures(site, file.parent),
        "checks": _checks(site, file.parent),
        "causes": tuple(_absolute(text, file.parent) for text in site.causes),
        "profiles": tuple(_absolute(text, file.parent) for text in site.profiles),
    }
    return site.model_copy(update=changes)


def _pip(site: Site, directory: Path) -> Any:
    """The pip policy with paths relative to the site.yaml made absolute."""
    links = tuple(link if "://" in link else str(directory / with_home(link)) for link in site.pip.find_links)
    return site.pip.model_copy(update={"find_links": links})


def _launch(site: Site, directory: Path) -> Any:
    """The launch policy with the path of its bindings made absolute."""
    container = site.launch.container
    file = _absolute(container.bindings, directory) if container.bindings else ""
    return site.launch.model_copy(update={"container": container.model_copy(update={"bindings": file})})


def _checks(site: Site, directory: Path) -> Any:
    """The checks of every stack with the paths of their files made absolute."""
    return tuple(
        check.model_copy(update={"file": _absolute(check.file, directory)}) if check.file else check
        for check in site.checks
    )


def _absolute(text: str, directory: Path) -> str:
    """A path relative to the site.yaml made absolute."""
    return str((directory / with_home(text)).absolute())


def _signatures(site: Site, directory: Path) -> Any:
    """The policy of signatures with paths relative to the site.yaml made absolute."""
    policy = site.signatures
    texts = {key: getattr(policy, key) for key in ("key", "allowed_signers", "revoked")}
    return policy.model_copy(update={key: _absolute(text, directory) for key, text in texts.items() if text})


def _check(site: Site, document: Document, problems: list[InputError]) -> None:
    """Add problems that the models alone cannot detect, each with its place."""
    _try(problems, document.where("modules", "naming"), lambda: check_template(site.modules.naming))
    directory = Path(document.file).parent
    for index, pin in enumerate(site.pins):
        place = document.where("pins", index)
        _try(problems, place, partial(parse_matchspec, pin, place, base_dir=directory))
    for key in ("yard", "user_yard"):
        value = getattr(site, key)
        if value and not value.startswith(("/", "$", "~")):
            hint = "begin it with /, ~ or a variable: a yard must not depend on the working directory"
            problems.append(
                InputError(f"{key}: {quoted(value)} is not an absolute path", where=document.where(key), hint=hint)
            )
    if site.signatures.require and not site.signatures.allowed_signers:
        hint = "name the file with `allowed_signers:`"
        message = "signatures.require: no allowed signers"
        problems.append(InputError(message, where=document.where("signatures", "require"), hint=hint))
    newest = site.channels.exclude_newer
    if newest:
        _try(problems, document.where("channels", "exclude_newer"), partial(end_of, newest))
    for part in Overrides.model_fields:
        _check_overrides(part, document, problems)


def place_of_pin(file: str, pin: str) -> Where:
    """The place of a pin in a site.yaml; the whole file if the pin is no longer there."""
    document = read_yaml(Path(file))
    pins = document.at("pins")
    values = pins.value if pins is not None and isinstance(pins.value, list) else [pins.value] if pins else []
    return document.where("pins", values.index(pin)) if pin in values else document.where("pins")


def _try(problems: list[InputError], where: Where, check: Any) -> None:
    try:
        check()
    except InputError as error:
        problems.append(InputError(error.message, where=error.where or where, hint=error.hint))


def _check_overrides(part: str, document: Document, problems: list[InputError]) -> None:
    """Check that the values for every stack are valid in a stack."""
    root = document.at("stacks", part)
    if root is None or root.is_null:
        return
    if root.kind != "mapping":
        problems.append(InputError(f"stacks.{part}: expected a mapping", where=root.where))
        return
    for key in ("name", "version", "versions"):
        if root.get(key):
            where = (root.key(key) or root).where
            problems.append(
                InputError(f"stacks.{part}: {quoted(key)} cannot be set for every stack", where=where, hint="remove it")
            )
    validate(StackFile, plain(root), Document(document.file, document.text, root), problems, unfilled=True)


def merged(stack: Node, site: Site) -> Node:
    """A stack's file with the site's values for every stack merged in.

    ``defaults`` are overridden by the stack; ``prepend`` and ``append`` join lists (a single value counts as a list
    of one; mappings are joined key by key); ``force`` replaces, and comes last.

    Args:
        stack: the mapping of a stack.yaml. ``environment`` becomes a list of environments.
    """
    place = Where(file=site.file)
    overrides = site.stacks
    stack = _environment_list(stack)
    for values, join in (
        (overrides.defaults, lambda own, _: own),
        (overrides.prepend, _prepend),
        (overrides.append, _append),
        (overrides.force, lambda _, other: other),
    ):
        if values:
            stack = _joined(stack, _environment_list(expand.tree(values, place)), join)
    return stack


def _environment_list(node: Node) -> Node:
    """The mapping with its ``environment`` as a list."""
    entries = tuple((key, _listed(value) if key.text == "environment" else value) for key, value in node.entries)
    return _mapping(node, entries)


def _listed(node: Node) -> Node:
    if node.kind == "sequence" or node.is_null:
        return node
    return Node("sequence", [node.value], node.where, items=(node,))


def _mapping(node: Node, entries: tuple[tuple[Node, Node], ...]) -> Node:
    return replace(node, entries=entries, value={key.text: value.value for key, value in entries})


def _joined(own: Node, other: Node, join: Any) -> Node:
    """Two mappings merged key by key; `join` merges two values that are not mappings."""
    entries = {key.text: (key, value) for key, value in own.entries}
    for key, value in other.entries:
        mine = entries.get(key.text)
        if mine is None or mine[1].is_null:
            entries[key.text] = (key, value)
        elif mine[1].kind == "mapping" and value.kind == "mapping":
            entries[key.text] = (mine[0], _joined(mine[1], value, join))
        else:
            entries[key.text] = (mine[0], join(mine[1], value))
    return _mapping(own, tuple(entries.values()))


def _append(own: Node, other: Node) -> Node:
    items = (*_listed(own).items, *_listed(other).items)
    return replace(_listed(own), items=items, value=[item.value for item in items])


def _prepend(own: Node, other: Node) -> Node:
    return replace(_append(other, own), where=own.where)
