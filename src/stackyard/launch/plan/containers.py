"""Runs the ranks' program in an image, with the site's configuration.

The runtime runs between the shim and the program, so identity, ports and addresses are determined outside (images
rarely contain scontrol) and passed as variables. `runtimes` has what each runtime does with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.change import EnvironmentChange, Prepend
from stackyard.core.errors import InputError
from stackyard.core.pymodules import script_of
from stackyard.inputs.reading.imagename import is_image_name
from stackyard.inputs.sites.jobmodels import ContainerPolicy
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan import runtimes
from stackyard.launch.plan.backends.base import HELPERS
from stackyard.launch.plan.model import RankProgram, Reason, Wrapper
from stackyard.launch.plan.runtimes.base import RuntimeInput
from stackyard.launch.plan.staging import VARIABLE, image_path, staged_image
from stackyard.launch.request.intent import OWN_DIRECTORY, Intent

if TYPE_CHECKING:
    from stackyard.inputs.sites.bindings import HostBindings

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


def wrap(
    intent: Intent,
    site: Site,
    layout: Layout,
    change: EnvironmentChange,
    *,
    program: RankProgram | None = None,
    stack_root: str = "",
    environ: Mapping[str, str] | None = None,
    passed: Iterable[str] = (),
) -> Wrapper:
    """The words and variables that run a program in the intent's image.

    Args:
        change: the stack's environment; its PATH is prepended to the image's.
        program: the backend's program; its helper programs are bound if needed.
        stack_root: the directory of the stack to bind (its yard); empty without a stack.
        environ: its PATH is searched for a runtime; None: this process's.
        passed: the names of the variables of every rank.

    Raises:
        InputError: the image does not exist, or the runtime does not support its format.
        MissingError: the site names no runtime and none is found.
    """
    # the site's settings, with the bindings that its machine needs, in the runtime's words
    named = intent.runtime or site.launch.container.runtime
    image = _image(intent, labels=bool(named) and runtimes.named(named).labels)
    runtime = runtimes.choose(named, image, environ)
    runtime.require(environ)
    bindings = _bindings(site)
    policy = _with_own(bindings.applied(site.launch.container, runtime.libraries), intent)
    cwd = intent.cwd or str(Path.cwd())
    if intent.workdir == OWN_DIRECTORY and not runtime.starts_in_image:
        raise InputError(f"{runtime.name} starts a program in a directory of the host, and not in the image's own",
                         hint="name a directory in workdir, or leave it out for the working directory")  # fmt: skip
    if intent.workdir and runtime.kind == "words":
        raise InputError(f"workdir: {runtime.name} has the root of the host", hint="set cwd: the program starts there")
    staged = (f"${{{VARIABLE}}}",) if intent.stage else ()
    if runtime.kind == "inside":
        _refuse_inside(intent, runtime.name)
    # bound at their own paths: what the program names by path
    why = {
        cwd: "the working directory",
        **dict.fromkeys(_script_directory(intent, cwd), "the directory of the program"),
        **dict.fromkeys(_helpers(program), "the helper programs of the backend"),
        **({stack_root: "the stack"} if stack_root else {}),
    }
    fixed = list(why)
    why |= dict.fromkeys(intent.mounts, "a mount of the job")
    wire = runtime.wires(program is not None and program.mpi)
    binds = (*policy.binds, *(b for b in dict.fromkeys(fixed) if b not in policy.binds), *wire, *staged)
    path = tuple(reversed([o.directory for o in change if isinstance(o, Prepend) and o.variable == "PATH"]))
    gpu = layout.node.gpu_vendor if layout.gpus_per_rank else ""
    apart = APART if runtime.apart and program is not None and program.mpi and layout.ranks_per_node > 1 else {}
    # checked with the image as it is named, run with the copy on the node
    variables = {**apart, **policy.variables}
    directory = _directory(intent, cwd)
    names = tuple(dict.fromkeys((*passed, *(program.variables if program else ()))))
    inside = RuntimeInput(staged_image(intent) or image, directory, policy, gpu, binds, path, variables, why, names)
    runtime.check(replace(inside, image=image))
    wrapper = runtime.wrapper(inside)
    reasons = (*wrapper.reasons, *_of_apart(apart), *_of_bindings(site))
    # for the preflight: host files that must exist on each node, and files that all nodes share
    needed = tuple(dict.fromkeys((*_sources(policy), *bindings.needed)))
    on_disk = not staged_image(intent) and image.startswith("/")
    shared = tuple(path for path in (*fixed, *((image,) if on_disk else ())) if path not in needed)
    return replace(wrapper, needed=needed, shared=shared, host_mpi=bindings.mpi.library, reasons=reasons)


def _refuse_inside(intent: Intent, name: str) -> None:
    """Raise InputError for what needs a program of ours, or a copy of the node, where a task starts in the image."""
    if intent.stage:
        raise InputError(f"--stage: an image of {name} cannot mount what is copied to the nodes first",
                         hint="leave out --stage; the nodes read one .sqsh file of a shared file system")  # fmt: skip
    option = "--debug-rank" if intent.debug_rank is not None else "--stdin" if intent.stdin_rank is not None else ""
    if option:
        raise InputError(f"{option}: nothing of the host runs in an image of {name}, also not what joins a terminal",
                         hint="leave it out, or use --runtime apptainer")  # fmt: skip


def _directory(intent: Intent, cwd: str) -> str:
    """Where the program starts in the image; empty: in the image's own directory."""
    return "" if intent.workdir == OWN_DIRECTORY else intent.workdir or cwd


def _with_own(policy: ContainerPolicy, intent: Intent) -> ContainerPolicy:
    """The site's settings with the job's own mounts and words."""
    more = {"binds": (*policy.binds, *intent.mounts), "options": (*policy.options, *intent.container_options)}
    return policy.model_copy(update=more)


def _sources(policy: ContainerPolicy) -> list[str]:
    """The host paths in the site's ``binds`` and in ``--bind`` options; the runtime resolves relative ones."""
    binds = [*policy.binds, *(after for word, after in pairwise(policy.options) if word in _BIND_WORDS)]
    binds += [word.partition("=")[2] for word in policy.options if word.partition("=")[0] in _BIND_WORDS]
    return [word.partition(":")[0] for words in binds for word in words.split(",") if word.startswith("/")]


def _of_apart(apart: Mapping[str, str]) -> tuple[Reason, ...]:
    why = "ranks in namespaces of their own cannot read each other's memory; MPI would stop or warn without these"
    return (Reason(tuple(apart), why),) if apart else ()


def _of_bindings(site: Site) -> tuple[Reason, ...]:
    file = site.launch.container.bindings
    return (Reason((Path(file).name,), "the host's libraries in the image, each with its reason"),) if file else ()


def _bindings(site: Site) -> HostBindings:
    """The content of the site's bindings file; empty without one."""
    from stackyard.inputs.sites.bindings import HostBindings, load_bindings  # late: pydantic, for jobs in an image only

    file = site.launch.container.bindings
    return load_bindings(Path(file)) if file else HostBindings()


def _script_directory(intent: Intent, cwd: str) -> tuple[str, ...]:
    """The directory of the Python script, if outside the working directory; it imports from there."""
    script = script_of(intent.program)
    path = Path(os.path.normpath(Path(cwd, script)))
    return (str(path.parent),) if script and path.is_file() and not path.is_relative_to(cwd) else ()


def _helpers(program: RankProgram | None) -> tuple[str, ...]:
    """The directory of the helper programs, if the backend runs one."""
    words = (*program.argv, *program.sidecar) if program else ()
    return (str(HELPERS),) if any(word.startswith(str(HELPERS)) for word in words) else ()


def _image(intent: Intent, *, labels: bool) -> str:
    """The absolute path of the image, or its name in a registry; `labels`: or a word that the runtime knows."""
    path = Path(image_path(intent))
    if is_image_name(intent.container) or (labels and not path.exists() and intent.container[0] not in "./"):
        return intent.container
    if not path.exists():
        raise InputError(f"image not found: {path}", hint="--container takes a SIF or SquashFS file, or a directory")
    return str(path)
