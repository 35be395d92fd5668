"""Placeholders for pip in a stack without it: programs and a module that explain what to do, and fail.

Without them ``pip`` in a loaded stack would be the system's: it lists other packages, reports them as "already
satisfied", and installs into directories that the stack does not search.

``pip/__main__.py`` is a portion of a namespace package, which ``python -m pip`` runs. A real pip anywhere on the search
path takes precedence over it, as in the environments that users create on top.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from stackyard.make.job import Job
from stackyard.yard.write.atomic import write_text

_PROGRAM = """#!/bin/sh
# Written by stackyard: this stack has no pip.
cat >&2 <<'END'
{text}
END
exit 1
"""

_MODULE = """\"\"\"Written by stackyard: this stack has no pip.\"\"\"

import sys

if sys.prefix == {prefix!r}:
    sys.exit({text!r})
sys.exit(f"{{sys.executable}}: no module named pip in {{sys.prefix}}\\nhint: {{sys.executable}} -m ensurepip --upgrade")
"""


def write(job: Job, interpreter: Mapping[str, str]) -> None:
    """Write them if the stack has Python and no program of such a name.

    Args:
        interpreter: the source of its Python, as in the record.
    """
    if not job.python_version or any(job.site_packages.glob("pip/__init__.py")):
        return
    text = message(job, interpreter)
    short = ".".join(job.python_version.split(".")[:2])
    for name in ("pip", "pip3", f"pip{short}"):
        program = job.payload.program(name)
        if not program.exists():
            write_text(program, _PROGRAM.format(text=text))
            program.chmod(program.stat().st_mode | 0o111)
    write_text(job.site_packages / "pip" / "__main__.py", _MODULE.format(prefix=str(job.prefix), text=text))


def message(job: Job, interpreter: Mapping[str, str]) -> str:
    """The message: why pip is missing, and the commands that help."""
    steps = job.payload.on_top(interpreter)
    return "\n".join(
        [
            f"pip: the module {job.module} never changes, and has no pip of its own",
            "hint: add packages to it in a module of your own, a small layer on this one:",
            f"    stackyard extend --base {shlex.quote(job.module)} --name mine --pip NAME",
            "or create an environment on top of it, and install packages there:",
            *(f"    {step}" for step in (*steps, "pip install NAME")),
            f"`stackyard show {shlex.quote(job.module)}` lists the packages of this module.",
        ]
    )
