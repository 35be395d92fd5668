"""Shifter of NERSC: ``shifter --image=...``, a container for each rank in the root that the job's image gives.

Its documentation: the image must have been pulled (``shifterimg pull``); the host's variables pass, ``--volume`` takes
directories of the host, and home and scratch are mounted by the site's configuration.
"""

from __future__ import annotations

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding
from stackyard.inputs.reading.imagename import image_name, is_image_name
from stackyard.launch.plan.model import Reason, Wrapper
from stackyard.launch.plan.runtimes.base import BOUND, WIRE_UP, Runtime, RuntimeInput


class Shifter(Runtime):
    """shifter, for an image of a registry that the site's gateway has pulled."""

    name = "shifter"
    program = "shifter"
    pulls = starts_in_image = True

    def reads(self, image: str) -> bool:
        """Whether it is a name: Shifter takes no files."""
        return is_image_name(image)

    def wires(self, mpi: bool) -> tuple[str, ...]:
        """Each directory separately."""
        return WIRE_UP if mpi else WIRE_UP[:1]

    def check(self, inside: RuntimeInput) -> None:
        """Raise InputError for a digest, which Shifter's names cannot have, and for paths that separate volumes."""
        if image_name(inside.image).digest:
            raise InputError(
                f"Shifter takes tags, not digests: {inside.image}",
                hint="name a tag; the record of the run has the digest that it stands for",
            )
        for bind in inside.binds:
            if ";" in bind or bind.count(":") > 2:
                raise InputError(f"Shifter cannot mount {bind}: ; and : separate volumes", hint="use another name")

    def wrapper(self, inside: RuntimeInput) -> Wrapper:
        """The shifter command; variables of the site are set in the image."""
        name = image_name(inside.image)
        words = [self.program, f"--image=docker:{name.plain if name.registry else name.repository + name.version}"]
        if not name.tag:
            words[1] += ":latest"
        for bind in inside.binds:
            source, _, rest = bind.partition(":")
            words.append(f"--volume={source}:{rest or source}")
        words += [f"--env={key}={value}" for key, value in inside.variables.items()]
        words += [*((f"--workdir={inside.cwd}",) if inside.cwd else ()), *inside.policy.options, "--"]
        findings: tuple[Finding, ...] = ()
        if inside.gpu and not any(option.startswith(("-m", "--module")) for option in inside.policy.options):
            findings = (Finding(
                "shifter-gpu", "note", "Shifter binds the host's GPU driver by the site's module",
                "an image without it sees no GPU", "add --module=gpu to launch.container.options",
            ),)  # fmt: skip
        reasons = (Reason((self.program,), f"runs in {inside.image}"), Reason(("--volume",), BOUND))
        return Wrapper(tuple(words), reasons=reasons, findings=findings)
