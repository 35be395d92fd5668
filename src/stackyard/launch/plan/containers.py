"""Running the ranks' program in an image with Apptainer, Singularity or Charliecloud, configured by the site.

The runtime runs between the shim and the program, so identity, ports and addresses are determined outside (images
rarely contain scontrol) and passed as variables. How a runtime treats variables (Apptainer user guide, "Environment and
metadata"): it passes all of the host's except PATH and LD_LIBRARY_PATH, which are the image's;
``APPTAINERENV_PREPEND_PATH`` is prepended to the image's PATH, ``APPTAINERENV_X`` sets X inside, and the files of
``APPTAINER_CONTAINLIBS`` are added to the library path. These are set for the run only: they break image builds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.change import EnvironmentChange, Prepend
from stackyard.core.errors import InputError
from stackyard.core.findings import Finding
from stackyard.core.late import dataclass
from stackyard.core.pymodules import script_of
from stackyard.host.machine.runtimes import runtime_of
from stackyard.inputs.sites.library_directories import APPTAINER, CHARLIECLOUD
from stackyard.inputs.sites.sitemodels import ContainerPolicy, Site
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.backends.base import HELPERS
from stackyard.launch.plan.model import RankProgram, Reason, Wrapper
from stackyard.launch.plan.staging import VARIABLE, image_path, staged_image
from stackyard.launch.request.intent import Intent

if TYPE_CHECKING:
    from stackyard.inputs.sites.bindings import HostBindings

WIRED = ("${STACKYARD_WIRED}",)
WIRE_UP = ("${STACKYARD_STEP}", "${STACKYARD_WIRE_1}", "${STACKYARD_WIRE_2}")
"""Directories that the shim knows at run time: the run directory and the directories of the launcher's PMIx or PALS
server. Without them every rank inside is "rank 0 of 1" or hangs in MPI_Init. `WIRED` is all of them, each once, joined
by commas: Apptainer takes that, and says something on each rank about a directory that is bound twice."""

APART = {
    "MPICH_SMP_SINGLE_COPY_MODE": "NONE",
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "UCX_POSIX_USE_PROC_LINK": "n",
}
"""Variables of Cray MPICH, MPICH, Open MPI and UCX for ranks of a node that are in user namespaces of their own, as
with a runtime that is not setuid: process_vm_readv(2) and /proc/PID/fd between them are refused, and MPICH stops in
MPI_Init. The site's `variables` override them. ``images/bindings/families.yaml`` has those of each MPI; it is not read
here, where every launch would wait for it."""


_BIND_WORDS = ("--bind", "-B", "-b")
"""Options of a runtime that are followed by what is bound."""


@dataclass(frozen=True)
class Inside:
    """The input of one runtime: the image, working directory, binds and variables."""

    image: str
    cwd: str
    policy: ContainerPolicy
    gpu: str = ""
    binds: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


def wrap(
    intent: Intent,
    site: Site,
    layout: Layout,
    change: EnvironmentChange,
    *,
    program: RankProgram | None = None,
    stack_root: str = "",
    environ: Mapping[str, str] | None = None,
) -> Wrapper:
    """The words and variables that run a program in the intent's image.

    Args:
        change: the stack's environment; its PATH is prepended to the image's.
        program: the backend's program; its helper programs are bound if needed.
        stack_root: the directory of the stack to bind (its yard); empty without a stack.
        environ: its PATH is searched for a runtime; None: this process's.

    Raises:
        InputError: the image does not exist, or the runtime does not support its format.
        MissingError: the site names no runtime and none is found.
    """
    image = _image(intent)
    runtime = runtime_of(site.launch.container.runtime, image, environ)
    bindings = _bindings(site)
    policy = bindings.applied(site.launch.container, CHARLIECLOUD if runtime == "charliecloud" else APPTAINER)
    cwd = intent.cwd or str(Path.cwd())
    staged = (f"${{{VARIABLE}}}",) if intent.stage else ()
    fixed = [cwd, *_script_folder(intent, cwd), *_helpers(intent, program), *((stack_root,) if stack_root else ())]
    wire = _wire(runtime, program)
    binds = (*policy.binds, *(b for b in dict.fromkeys(fixed) if b not in policy.binds), *wire, *staged)
    path = tuple(reversed([o.directory for o in change if isinstance(o, Prepend) and o.variable == "PATH"]))
    gpu = layout.node.gpu_vendor if layout.gpus_per_rank else ""
    apart = APART if program is not None and program.mpi and layout.ranks_per_node > 1 else {}
    inside = Inside(staged_image(intent) or image, cwd, policy, gpu, binds, path, {**apart, **policy.variables})
    if runtime == "charliecloud":
        _mount_points(replace(inside, image=image))
    made = _charliecloud(inside) if runtime == "charliecloud" else _apptainer(runtime, inside)
    reasons = (*made.reasons, *_of_apart(apart), *_of_bindings(site))
    needed = tuple(dict.fromkeys((*_sources(policy), *bindings.needed)))
    shared = tuple(path for path in (*fixed, *(() if staged_image(intent) else (image,))) if path not in needed)
    return replace(made, needed=needed, shared=shared, host_mpi=bindings.mpi.library, reasons=reasons)


def _sources(policy: ContainerPolicy) -> list[str]:
    """The host's files of the site's ``binds`` and of ``--bind`` among its options; relative ones are the runtime's."""
    given = [*policy.binds, *(after for word, after in pairwise(policy.options) if word in _BIND_WORDS)]
    given += [word.partition("=")[2] for word in policy.options if word.partition("=")[0] in _BIND_WORDS]
    return [each.partition(":")[0] for words in given for each in words.split(",") if each.startswith("/")]


def _of_apart(apart: Mapping[str, str]) -> tuple[Reason, ...]:
    why = "ranks in namespaces of their own cannot read each other's memory; MPI would stop or warn without these"
    return (Reason(tuple(apart), why),) if apart else ()


def _of_bindings(site: Site) -> tuple[Reason, ...]:
    file = site.launch.container.bindings
    return (Reason((Path(file).name,), "the host's libraries in the image, each with its reason"),) if file else ()


def _bindings(site: Site) -> HostBindings:
    """What the site's file of bindings says; none without one."""
    from stackyard.inputs.sites.bindings import HostBindings, load_bindings  # late: pydantic, for jobs in an image only

    file = site.launch.container.bindings
    return load_bindings(Path(file)) if file else HostBindings()


def _wire(runtime: str, program: RankProgram | None) -> tuple[str, ...]:
    if runtime != "charliecloud":
        return WIRED
    return WIRE_UP if program is not None and program.mpi else WIRE_UP[:1]


def _script_folder(intent: Intent, cwd: str) -> tuple[str, ...]:
    """The directory of the Python script, if outside the working directory; it imports from there."""
    script = script_of(intent.program)
    path = Path(os.path.normpath(Path(cwd, script)))
    return (str(path.parent),) if script and path.is_file() and not path.is_relative_to(cwd) else ()


def _helpers(intent: Intent, program: RankProgram | None) -> tuple[str, ...]:
    """The directory of the helper programs, if the backend or PyTorch's profiler runs one."""
    words = (*program.argv, *program.sidecar) if program else ()
    traced = any(spec.split(":")[0] == "torch" for spec in intent.profile)
    return (str(HELPERS),) if traced or any(word.startswith(str(HELPERS)) for word in words) else ()


def _image(intent: Intent) -> str:
    name = intent.container
    if "://" in name:
        raise InputError(
            f"{name} is not a file: every rank would pull and convert it",
            hint=f"convert it once: apptainer build image.sif {name}",
        )
    path = Path(image_path(intent))
    if not path.exists():
        raise InputError(f"image not found: {path}", hint="--container takes a SIF or SquashFS file, or a directory")
    return str(path)


def _apptainer(runtime: str, inside: Inside) -> Wrapper:
    """``apptainer exec``; Singularity has the same options, and variables with its own prefix."""
    prefix = runtime.upper()
    words = [runtime, "exec"]
    reasons = [Reason((runtime, "exec"), f"runs in {inside.image}")]
    flag = {"nvidia": "--nv", "amd": "--rocm"}.get(inside.gpu)
    if flag:
        words.append(flag)
        reasons.append(Reason((flag,), "binds the host's GPU driver libraries"))
    for bind in inside.binds:
        words += ["--bind", bind]
    reasons.append(
        Reason(
            ("--bind",), "the site's directories, the working directory, the run directory, the launcher's PMI server"
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
    return Wrapper(tuple(words), variables=variables, reasons=tuple(reasons), findings=_cleaned(inside), lists=lists)


def _charliecloud(inside: Inside) -> Wrapper:
    """``ch-run`` (0.26 and newer: ``--set-env=NAME=VALUE``); all variables of the host are passed, PATH too."""
    words = ["ch-run"]
    for bind in inside.binds:
        words += ["-b", bind.removesuffix(":ro").removesuffix(":rw")]
    words += [f"--set-env={name}={value}" for name, value in _with_libraries(inside).items()]
    words += ["--env-no-expand", "-c", inside.cwd, *inside.policy.options, inside.image, "--"]
    reasons: tuple[Reason, ...] = (
        Reason(("ch-run",), f"runs in {inside.image}"),
        Reason(("-b",), "the site's directories, the working directory, the run directory, the launcher's PMI server"),
    )
    libraries = inside.policy.libraries
    if libraries:
        reasons += (Reason(("LD_LIBRARY_PATH",), "the host libraries that the site names, bound on each node"),)
    findings = (*_cleaned(inside), *_beyond_charliecloud(inside))
    return Wrapper(tuple(words), reasons=reasons, findings=findings, linked=libraries)


def _with_libraries(inside: Inside) -> dict[str, str]:
    """The variables, with the directory of the site's libraries at the end of LD_LIBRARY_PATH, if it is not in it."""
    given = inside.variables.get("LD_LIBRARY_PATH", "")
    if not inside.policy.libraries or CHARLIECLOUD.libraries in given:
        return inside.variables
    added = f"{given}:{CHARLIECLOUD.libraries}" if given else CHARLIECLOUD.libraries + CHARLIECLOUD.rest
    return {**inside.variables, "LD_LIBRARY_PATH": added}


def _mount_points(inside: Inside) -> None:
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


def _is_file(target: str) -> bool:
    return Path(target).is_file()


def _beyond_charliecloud(inside: Inside) -> tuple[Finding, ...]:
    """Requests that ch-run has no option for."""
    found = []
    if inside.gpu:
        found.append(
            Finding(
                "charliecloud-gpu", "warning", "Charliecloud does not bind the host's GPU driver libraries",
                "the image works on GPUs only if it contains them", "run ch-fromhost --nvidia IMAGE once",
            )
        )  # fmt: skip
    return tuple(found)


def _cleaned(inside: Inside) -> tuple[Finding, ...]:
    """A warning if the site's options remove the ranks' variables."""
    cleaning = inside.policy.cleaning
    if not cleaning:
        return ()
    return (
        Finding(
            "container-cleanenv", "warning", f"{cleaning} removes the ranks' variables inside the container",
            "RANK, WORLD_SIZE, MASTER_ADDR and the launcher's own PMI variables do not reach the program",
            "remove it from `launch.container.options`",
        ),
    )  # fmt: skip
