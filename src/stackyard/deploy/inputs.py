"""The input files of a deploy, and whether its result depends on anything else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.deploy.memo import digests
from stackyard.host.files import home
from stackyard.inputs.models import Site, Stack, Variant
from stackyard.lock.lockfile.text import path_for
from stackyard.yard import disk

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request

PIP_CONFIGS = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")


def files_of(stacks: Iterable[Stack], site: Site) -> list[str]:
    """The files that describe these stacks, sorted: their own, what these name or include, their locks, the site's."""
    files = [name for name in (site.file, site.signatures.allowed_signers, site.signatures.revoked) if name]
    for stack in stacks:
        files += [stack.file, str(path_for(Path(stack.file)))]
        for variant in stack.variants:
            files += [*variant.files, *_named_files(variant)]
    return sorted(set(files))


def as_read(stacks: Iterable[Stack], site: Site) -> dict[str, str]:
    """The hashes of the files that a deploy only reads; to be called right after the stacks were loaded.

    A file may change while a deploy waits or builds; the published revisions come from the earlier content. Locks are
    left out, since a deploy writes them.
    """
    stacks = list(stacks)
    locks = {str(path_for(Path(stack.file))) for stack in stacks}
    return digests([name for name in files_of(stacks, site) if name not in locks] + _configs())


def still_as_read(read: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether no file that a deploy read has changed since."""
    return all(now.get(name, digest) == digest for name, digest in read.items())


def memo_inputs(request: Request) -> list[str] | None:
    """All files that a deploy reads, for the memo; None if its result depends on anything else.

    Such are a local project (a directory), a host tool, a host module, a wrapped image, a variable named in a file.
    """
    if any(_depends_on_more(variant) for stack in request.stacks for variant in stack.variants):
        return None
    files = files_of(request.stacks, request.site)
    if any(_names_variable(f) for f in files if f != request.site.file):
        return None
    in_yard = (request.yard.lock_of(path_for(Path(stack.file))) for stack in request.stacks)
    lines = map(str, in_yard)  # of files in read-only directories
    return sorted({*files, *lines, *_configs()})


def _configs() -> list[str]:
    """pip's configuration files; without a home directory, those below it count as missing each time.

    Left out are files that you may not read, which pip passes over too.
    """
    own = home.find() or home.NOWHERE
    files = [name.replace("~", str(own), 1) for name in PIP_CONFIGS]
    return [file for file in files if os.access(file, os.R_OK) or not os.access(file, os.F_OK)]


def _names_variable(file: str) -> bool:
    return bool(re.search(rb"\$\w|\$\{|\{env:", disk.content(Path(file)) or b""))


def _depends_on_more(variant: Variant) -> bool:
    local = any(r.kind in ("path", "vcs") for r in variant.environment.pip)
    return (
        bool(variant.on)
        or local
        or variant.wrap is not None
        or bool(variant.build.tools or variant.build.modules or variant.environment.pip_options.find_links)
    )


def _named_files(variant: Variant) -> list[str]:
    scripts = [check.script for check in variant.checks if check.script]
    patches = [p for package in variant.build.packages.values() for p in package.patches]
    texts = [licence.text for licence in variant.licences if licence.text]
    return [*scripts, *patches, *texts, *([variant.post] if variant.post else [])]
