"""The files that a deploy depends on, and whether it depends on anything else."""

from __future__ import annotations

import re
from pathlib import Path

from stackyard.lock.text import path_for
from stackyard.publish.deploy import Request
from stackyard.spec.models import Variant

PIP_CONFIGS = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")


def memo_inputs(request: Request) -> list[str] | None:
    """All files that this deploy reads, for the memo; None where its result depends on anything else.

    That is a local project (a folder), a host tool, a host module, a variable named in a file.
    """
    files: list[str] = []
    for stack in request.stacks:
        files += [stack.file, str(path_for(Path(stack.file)))]
        for variant in stack.variants:
            if _depends_on_more(variant):
                return None
            files += variant.files
            files += _named_files(variant)
    if any(re.search(r"\$\w|\$\{|\{env:", Path(f).read_text(errors="replace")) for f in files if Path(f).is_file()):
        return None
    configs = [str(Path(name).expanduser()) for name in PIP_CONFIGS]
    return sorted({*files, *configs, *([request.site.file] if request.site.file else [])})


def _depends_on_more(variant: Variant) -> bool:
    local = any(r.kind in ("path", "vcs") for r in variant.environment.pip)
    return local or bool(variant.build.tools or variant.build.modules or variant.environment.pip_options.find_links)


def _named_files(variant: Variant) -> list[str]:
    scripts = [check.script for check in variant.checks if check.script]
    patches = [p for package in variant.build.packages.values() for p in package.patches]
    texts = [licence.text for licence in variant.licences if licence.text]
    return [*scripts, *patches, *texts, *([variant.post] if variant.post else [])]
