"""Apptainer and Singularity: ``apptainer exec``.

Apptainer user guide, "Environment and metadata": they pass all of the host's variables except PATH and LD_LIBRARY_PATH,
which are the image's; ``APPTAINERENV_PREPEND_PATH`` is prepended to the image's PATH, ``APPTAINERENV_X`` sets X inside,
and the files of ``APPTAINER_CONTAINLIBS`` are added to the library path. These are set for the run only: they break
image builds.
"""

from __future__ import annotations

from stackyard.launch.plan.model import Reason, Wrapper
from stackyard.launch.plan.runtimes.base import BOUND, Runtime, RuntimeInput, cleaned


class Apptainer(Runtime):
    """Apptainer or Singularity, which has the same options, and variables with its own prefix."""

    def __init__(self, name: str) -> None:
        self.name = self.program = name

    def wrapper(self, inside: RuntimeInput) -> Wrapper:
        """The exec command, and variables with the runtime's prefix."""
        prefix = self.name.upper()
        words = [self.program, "exec"]
        reasons = [Reason((self.program, "exec"), f"runs in {inside.image}")]
        flag = {"nvidia": "--nv", "amd": "--rocm"}.get(inside.gpu)
        if flag:
            words.append(flag)
            reasons.append(Reason((flag,), "binds the host's GPU driver libraries"))
        for bind in inside.binds:
            words += ["--bind", bind]
        reasons.append(
            Reason(
                ("--bind",),
                BOUND,
            )
        )
        words += ["--pwd", inside.cwd, *inside.policy.options, inside.image]
        variables = {f"{prefix}ENV_{name}": value for name, value in inside.variables.items()}
        if inside.path:
            variables[f"{prefix}ENV_PREPEND_PATH"] = ":".join(inside.path)
            reasons.append(Reason((f"{prefix}ENV_PREPEND_PATH",), "prepends the stack's programs to the image's PATH"))
        libraries, lists = inside.policy.libraries, {}
        if any("*" in path for path in libraries):
            lists = {f"{prefix}_CONTAINLIBS": libraries}
        elif libraries:
            variables[f"{prefix}_CONTAINLIBS"] = ",".join(libraries)
        if libraries:
            reasons.append(Reason((f"{prefix}_CONTAINLIBS",), "the host libraries that the site names"))
        return Wrapper(tuple(words), variables=variables, reasons=tuple(reasons), findings=cleaned(inside), lists=lists)
