"""CSCS's environment definition files: ``srun --environment=FILE.toml``, which is Pyxis with a file of its options.

CSCS's documentation of the container engine, and sarus-suite, which reads the same files: ``image``, ``mounts``,
``workdir``, ``writable``, ``entrypoint``, ``[env]``, ``[annotations]``. ``${NAME}`` is a variable, ``$$`` a $.
"""

from __future__ import annotations

from collections.abc import Mapping

from stackyard.inputs.reading.imagename import image_name, is_image_name
from stackyard.launch.plan.model import STEP_IN_TOML, Reason, Wrapper, in_toml
from stackyard.launch.plan.runtimes.base import RuntimeInput
from stackyard.launch.plan.runtimes.pyxis import STEP, Pyxis, mounts_of, require_option

FILE = "environment.toml"
ANNOTATIONS = "--annotation="
"""How an option of the site names an entry of ``[annotations]``: ``--annotation=com.hooks.cxi.enabled=true``."""


class Edf(Pyxis):
    """An environment definition file that the step brings with it."""

    name = "edf"

    def require(self, environ: Mapping[str, str] | None) -> None:
        """Raise MissingError where srun is on PATH and has no option --environment."""
        require_option(self.name, "the container engine (environment definition files)", environ)

    def wrapper(self, inside: RuntimeInput) -> Wrapper:
        """The file, and the word that names it."""
        mounts = dict(mounts_of(inside))
        made = super().wrapper(inside)
        text = edf_text(inside.image, tuple(mounts), inside.policy.options)
        word = Reason((f"--environment={{step}}/{FILE}",), f"each task starts in {inside.image}, by this file")
        return Wrapper(
            (), variables=made.variables, reasons=made.reasons, findings=made.findings, launcher=(word,), inside=True,
            workdir=made.workdir, pulled=made.pulled, files={FILE: text},
        )  # fmt: skip


def edf_text(image: str, mounts: tuple[str, ...], options: tuple[str, ...]) -> str:
    """The file: its strings have no variables of the job, and the entrypoint does not run."""
    name = image_name(image).enroot if is_image_name(image) else image
    lines = [f"image = {_string(name)}", "entrypoint = false", "writable = true"]
    lines += ["mounts = [", *(f"    {_string(mount)}," for mount in mounts), "]"]
    notes = [option.removeprefix(ANNOTATIONS).partition("=") for option in options if option.startswith(ANNOTATIONS)]
    if notes:
        lines += ["", "[annotations]", *(f"{_string(key)} = {_string(value)}" for key, _, value in notes)]
    return "\n".join([*lines, ""]).replace(STEP, STEP_IN_TOML)


def _string(text: str) -> str:
    return f'"{in_toml(text)}"'
