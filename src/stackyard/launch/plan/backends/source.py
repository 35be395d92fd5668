"""Facts from a program's source, parsed with `ast` and never run: its imports and known problems."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from stackyard.core.errors import Where, cause
from stackyard.core.findings import Finding
from stackyard.core.late import dataclass
from stackyard.core.pymodules import module_of, program_file, program_modules
from stackyard.host.files.elf import ElfFile, read_elf
from stackyard.launch.request.intent import Intent


@dataclass(frozen=True)
class Import:
    """One imported top-level package and its place. `surely`: unconditional, not in a function, an `if` or a `try`."""

    name: str
    file: str
    line: int
    surely: bool = False


@dataclass(frozen=True)
class Source:
    """A program's script and the modules next to it that it imports.

    `unread` is the reason why nothing was parsed, e.g. that the program is not a Python script; else empty.
    """

    script: str = ""
    imports: tuple[Import, ...] = ()
    trees: dict[str, ast.Module] = field(default_factory=dict)
    unread: str = ""

    def imported(self, name: str) -> Import | None:
        """The first import of a package."""
        return next((entry for entry in self.imports if entry.name == name), None)

    def words(self) -> set[str]:
        """All string constants, e.g. to see whether an option such as ``--local_rank`` is parsed."""
        nodes = (node for tree in self.trees.values() for node in ast.walk(tree))
        return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def read(intent: Intent) -> Source:
    """Parse the program of an intent and the modules next to it."""
    cwd, module = Path(intent.cwd or "."), module_of(intent.program)
    path = program_file(cwd, intent.program)
    if path is None:
        where = f"module {module} not found in {cwd.absolute()}" if module else ""
        return Source(unread=where or "the program is not a *.py file")
    trees: dict[str, ast.Module] = {}
    imports: list[Import] = []
    try:
        for program_module in program_modules(cwd, intent.program, path):
            trees[str(program_module.file)] = program_module.parsed.tree
            for node, of_module in program_module.parsed.imports:
                imports += _imports(node, str(program_module.file), surely=program_module.surely and of_module)
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        return Source(str(path), unread=f"cannot read {path}: {cause(error)}")
    return Source(str(path), tuple(imports), trees)


def _imports(node: ast.Import | ast.ImportFrom, file: str, *, surely: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name.split(".")[0], file, node.lineno, surely)
    elif node.module and not node.level:
        yield Import(node.module.split(".")[0], file, node.lineno, surely)


MPI_PACKAGES = ("mpi4py", "dask_mpi", "petsc4py", "slepc4py", "mpi4jax", "dolfinx", "firedrake")
"""Packages that call MPI_Init in their process."""
_RUNTIME = frozenset({
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6",
    "libgomp.so.1",
})  # fmt: skip
"""Libraries of C, C++ and OpenMP: a program that is linked to no others is not linked to an MPI."""


def uses_mpi(intent: Intent) -> tuple[bool | None, str]:
    """Whether the ranks call MPI_Init, and why; None if unknown, such as for a wrapper script.

    A Python program is judged by its imports, a compiled one by its linked libraries.
    """
    program_source = read(intent)
    if not program_source.unread:
        place = next(filter(None, map(program_source.imported, MPI_PACKAGES)), None)
        return (False, "") if place is None else (True, f"{Where(place.file, place.line)} imports {place.name}")
    elf = _compiled(intent)
    if elf is None or not elf.needed:
        return None, program_source.unread
    if library := _mpi_library(elf):
        return True, f"{intent.program[0]} is linked to {library}"
    is_plain = all(name in _RUNTIME or name.startswith("ld-") for name in elf.needed)
    return (False, "") if is_plain else (None, program_source.unread)


def keras_backend(intent: Intent) -> str:
    """Keras' backend as a program or its job chooses it: KERAS_BACKEND; empty: not chosen there.

    https://keras.io/getting_started/#configuring-your-backend: a variable, or set in the program before the import.
    """
    if "KERAS_BACKEND" in intent.variables:
        return intent.variables["KERAS_BACKEND"]
    for tree in read(intent).trees.values():
        for node in ast.walk(tree):
            words: list[ast.expr] = []
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                words = [node.targets[0].slice, node.value]
            elif isinstance(node, ast.Call) and _called(node) in ("setdefault", "putenv"):
                words = node.args
            values = [word.value for word in words if isinstance(word, ast.Constant)]
            if values[:1] == ["KERAS_BACKEND"]:
                return str(values[-1])
    return ""


_DISTRIBUTED = ("DistributedDataParallel", "init_process_group", "FullyShardedDataParallel", "fully_shard")


def keras_findings(intent: Intent, ranks: int) -> tuple[Finding, ...]:
    """A warning for a Keras program whose backend has no multi-process form, in a job with several ranks.

    Only ``keras.distribution`` with JAX, and `tf.distribute` with TensorFlow have one (keras 3.15).
    """
    name = keras_backend(intent)
    program_source = read(intent)
    place = program_source.imported("keras")
    if ranks == 1 or place is None or name in ("", "jax", "tensorflow"):
        return ()
    nodes = (node for tree in program_source.trees.values() for node in ast.walk(tree))
    if any(getattr(node, "attr", getattr(node, "id", "")) in _DISTRIBUTED for node in nodes):
        return ()
    return (
        Finding(
            "keras-alone", "warning", f"each of the {ranks} ranks trains alone: Keras has no multi-process form with "
            f"its backend {name}", "only its JAX and TensorFlow backends train over several processes",
            "use KERAS_BACKEND=jax with keras.distribution.initialize(), or tf.distribute.MultiWorkerMirroredStrategy; "
            "with torch, wrap the model in DistributedDataParallel", Where(place.file, place.line),
        ),
    )  # fmt: skip


def linked_mpi(intent: Intent) -> tuple[Path, str] | None:
    """A compiled program and the name of the MPI library that it is linked to, e.g. ``libmpich.so.12``."""
    elf = _compiled(intent)
    library = _mpi_library(elf) if elf else ""
    return (elf.path, library) if elf and library else None


def _compiled(intent: Intent) -> ElfFile | None:
    """The program's own file, if it is compiled and runs outside of an image."""
    word = intent.program[0] if intent.program else ""
    path = Path(intent.cwd or ".", word)
    return read_elf(path) if "/" in word and path.is_file() and not intent.container else None


def _mpi_library(elf: ElfFile) -> str:
    return next((name for name in elf.needed if name.startswith("libmpi")), "")


VERBS_PACKAGES = ("ucp", "ucxx", "pyverbs", "nixl", "deep_ep", "mooncake", "nvshmem")
"""Packages that register memory with a network adapter in their process."""


def fork_findings(intent: Intent, *, over_mpi: bool) -> tuple[Finding, ...]:
    """A warning for each DataLoader that forks workers in a process with MPI or InfiniBand verbs loaded.

    fork(2) in such a process is undefined by the MPI standard and breaks registered memory: workers hang or crash.
    https://www.open-mpi.org/faq/?category=tuning#fork-warning, and Horovod's troubleshooting on data loaders.

    Args:
        over_mpi: the backend uses MPI; else the program's imports decide.
    """
    source = read(intent)
    loaded = "MPI" if over_mpi else next((name for name in VERBS_PACKAGES if source.imported(name)), "")
    if not loaded or intent.start_method in ("forkserver", "spawn"):
        return ()
    findings = []
    for file, tree in source.trees.items():
        names = {n.func.attr for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
        if "set_start_method" in names:
            return ()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) == "DataLoader" and _forks(node):
                findings.append(_fork_finding(loaded, file, node.lineno))
    return tuple(findings)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _forks(call: ast.Call) -> bool:
    """Whether a DataLoader call has workers (or a number of them known only at run time) and no other start method.

    The content of ``**options`` is unknown, so such a call is not reported.
    """
    arguments = {keyword.arg: keyword.value for keyword in call.keywords}
    workers = arguments.get("num_workers")
    if workers is None or None in arguments or (isinstance(workers, ast.Constant) and not workers.value):
        return False
    context = arguments.get("multiprocessing_context")
    return context is None or (isinstance(context, ast.Constant) and context.value in (None, "fork"))


def _fork_finding(loaded: str, file: str, line: int) -> Finding:
    return Finding(
        "dataloader-fork-mpi", "warning", f"a DataLoader forks workers in a process that uses {loaded}",
        "such a fork shares registered memory and open devices with the child: workers hang or crash",
        'stackyard launch --start-method forkserver, or DataLoader(..., multiprocessing_context="forkserver")',
        Where(file, line),
    )  # fmt: skip
