"""Charliecloud: ``ch-run`` (0.26 and newer: ``--set-env=NAME=VALUE``). It passes all variables of the host."""

from __future__ import annotations

from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding
from stackyard.inputs.sites.library_directories import CHARLIECLOUD
from stackyard.launch.plan.model import Reason, Wrapper
from stackyard.launch.plan.runtimes.base import BOUND, WIRE_UP, Runtime, RuntimeInput, cleaned, with_libraries


class Charliecloud(Runtime):
    """ch-run, for an image that is a directory or a SquashFS file."""

    name = "charliecloud"
    program = "ch-run"
    libraries = CHARLIECLOUD

    def reads(self, image: str) -> bool:
        """Whether the image is not a SIF file."""
        return not image.endswith(".sif")

    def wires(self, mpi: bool) -> tuple[str, ...]:
        """Each directory separately: ch-run does not accept a list."""
        return WIRE_UP if mpi else WIRE_UP[:1]

    def check(self, inside: RuntimeInput) -> None:
        """Raise InputError if a directory image lacks a mount point: ch-run creates none in a read-only image."""
        if not Path(inside.image).is_dir() or {"-w", "--write"} & set(inside.policy.options):
            return
        from stackyard.images.bindings.charliecloud import without_a_place
        from stackyard.images.bindings.tree import Tree

        lacking = without_a_place(Tree((Path(inside.image),)), inside.binds)
        if lacking:
            every = " ".join(f"{inside.image}{target}" for target in lacking)
            raise InputError(
                f"Charliecloud cannot bind {lacking[0]}: it does not exist in the image {inside.image}",
                hint=f"mkdir -p {every}" + (", or a file where one is bound" if any(map(_is_file, lacking)) else ""),
            )

    def wrapper(self, inside: RuntimeInput) -> Wrapper:
        """The ch-run command; libraries are linked on the nodes."""
        words = [self.program]
        for bind in inside.binds:
            words += ["-b", bind.removesuffix(":ro").removesuffix(":rw")]
        words += [f"--set-env={name}={value}" for name, value in with_libraries(inside, CHARLIECLOUD).items()]
        words += ["--env-no-expand", "-c", inside.cwd, *inside.policy.options, inside.image, "--"]
        reasons: tuple[Reason, ...] = (
            Reason(("ch-run",), f"runs in {inside.image}"),
            Reason(("-b",), BOUND),
        )
        libraries = inside.policy.libraries
        if libraries:
            reasons += (Reason(("LD_LIBRARY_PATH",), "the host libraries that the site names, bound on each node"),)
        findings = (*cleaned(inside), *_beyond_charliecloud(inside))
        return Wrapper(tuple(words), reasons=reasons, findings=findings, linked=libraries)


def _is_file(target: str) -> bool:
    return Path(target).is_file()


def _beyond_charliecloud(inside: RuntimeInput) -> tuple[Finding, ...]:
    """Requests that ch-run has no option for."""
    findings = []
    if inside.gpu:
        findings.append(
            Finding(
                "charliecloud-gpu", "warning", "Charliecloud does not bind the host's GPU driver libraries",
                "the image works on GPUs only if it contains them", "run ch-fromhost --nvidia IMAGE once",
            )
        )  # fmt: skip
    return tuple(findings)
