"""Checks whether the programs of an image load the host's libraries, and are compatible: findings with one remedy each.

Only files are examined, nothing is run: which file the loader selects in the image with the bindings, and whether it
defines the needed symbols. Most of these problems cause no error at run time: the ranks use the image's own MPI, or
each rank is alone, and the exit status is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stackyard.core.findings import Finding, some
from stackyard.host.files.elf import ElfFile
from stackyard.images.bindings.charliecloud import without_a_place
from stackyard.images.bindings.detect import files_below
from stackyard.images.bindings.drivers import Driver, check_driver, newest
from stackyard.images.bindings.elf.symbols import version_findings
from stackyard.images.bindings.families import KnownMpi, companion_sonames, families, known_mpi, mpi_sonames, parts
from stackyard.images.bindings.loader import Closure, LoadedFile, read_elf
from stackyard.images.bindings.opened import opened
from stackyard.images.bindings.profiles import missing_here
from stackyard.images.bindings.tree import Tree
from stackyard.images.bindings.view import Contents, User, View, contents, view
from stackyard.inputs.sites.bindings import HostBindings
from stackyard.inputs.sites.jobmodels import ContainerPolicy
from stackyard.inputs.sites.library_directories import LIBRARIES
from stackyard.inputs.sites.sitemodels import Gpu, Site

_SHOWN = 4
_OF_AN_MPI = (
    "mca_", "libmca_", "libompi", "ompi_", "oshmem_", "orte-", "libmpi_", "liboshmem", "libmpifort", "libmpicxx",
    "libmpich", "mpichversion", "mpivars", "mpirun", "mpiexec",
)  # fmt: skip
"""How the files of an MPI itself begin, which are no programs of the image."""


@dataclass(frozen=True)
class BindingReport:
    """The results for an image with the host's bindings.

    Attributes:
        read: the method of reading its files: ``directory``, ``mounted`` or ``unpacked``.
        users: its programs and libraries linked to an MPI.
        loads: the MPI library that each of them loads, and its origin: ``host`` or ``image``.
        rpaths: files of the image whose RPATH leads to its own MPI (`repair`).
    """

    image: str
    read: str
    users: tuple[str, ...]
    loads: dict[str, str]
    findings: tuple[Finding, ...]
    rpaths: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The results as JSON values."""
        return {**asdict(self), "findings": [finding.to_json() for finding in self.findings]}


@dataclass(frozen=True)
class BindingRequest:
    """The parameters of a check. `pmi`: the kind that the launcher starts MPI programs with; empty: unknown."""

    bindings: HostBindings
    policy: ContainerPolicy = field(default_factory=ContainerPolicy)
    pmi: str = ""
    drivers: tuple[Driver, ...] = ()


def check(image: Path, request: BindingRequest) -> BindingReport:
    """Check an image.

    Raises:
        InputError: it is not an image.
        MissingError: a program that reads it is not installed.
    """
    policy = request.bindings.applied(request.policy)
    with opened(image) as files:
        seen, inside = view(files.tree, policy), contents(files.tree)
        users = [user for user in inside.users if _counts(user, seen)]
        loads: dict[str, str] = {}
        rpaths: dict[str, None] = {}
        findings = [
            *_sources(request.bindings),
            *_known(request.bindings),
            *_cleaned(policy),
            *_names(seen),
            *_pmi(request),
        ]
        findings += _places(files.tree, policy)
        findings += _of_users(users, seen, request.bindings, loads, rpaths)
        findings += _of_components(users, seen, request.bindings, loads)
        findings += _of_drivers(inside, request.drivers)
        return BindingReport(
            str(image), files.how, tuple(user.path for user in users), loads, _sorted(findings), tuple(rpaths)
        )


def drivers_of(site: Site, here: tuple[Driver, ...] = ()) -> tuple[Driver, ...]:
    """The GPU drivers of a site's node kinds, since login nodes have none; else this machine's."""
    kinds = ((name, kind.gpu) for name, kind in site.nodes.items() if kind.gpu.vendor in ("nvidia", "amd"))
    drivers = tuple(_driver(gpu, f"node kind {name}") for name, gpu in kinds if gpu.driver)
    return drivers or here


def _driver(gpu: Gpu, where: str) -> Driver:
    return Driver(gpu.vendor, gpu.driver, where, gpu.cuda)


def _counts(user: User, seen: View) -> bool:
    """Whether an MPI user belongs to a program, not to the image's own MPI, and is not hidden by a bind."""
    if Path(user.path).name.startswith(_OF_AN_MPI):
        return False
    path = seen.loader.tree.find(user.path)
    elf = read_elf(path.outside) if path else None  # a repaired copy may be bound there, or a directory of the host
    return elf is not None and set(user.needs) <= set(elf.needed)


def _sources(bindings: HostBindings) -> Iterator[Finding]:
    missing = missing_here(bindings)
    if missing:
        yield Finding(
            "bind-source", "refused", f"{some(missing, _SHOWN)} not found on this machine",
            "the runtime starts no program if a path to bind does not exist",
            "detect the bindings again on a compute node, or remove the path",
        )  # fmt: skip


@dataclass(frozen=True)
class _Host:
    """The host's MPI: the one that the image's programs are to load."""

    library: Path
    known: KnownMpi
    elf: ElfFile | None


def _host(bindings: HostBindings) -> _Host | None:
    library = Path(bindings.mpi.library)
    known = known_mpi(library) if bindings.mpi.library else None
    return _Host(library, known, read_elf(library)) if known else None


def _known(bindings: HostBindings) -> Iterator[Finding]:
    """A finding for bindings without a known MPI library: whether programs load it cannot be determined."""
    library = bindings.mpi.library
    if (bindings.mpi.family == "none" and not library) or _host(bindings):
        return
    what = f"{library} is not an MPI that is known" if Path(library).exists() else f"{library} not found"
    yield Finding(
        "mpi-unknown", "refused", f"the host's MPI: {what if library else 'its library is not named'}",
        "whether the image's programs load it is unknown",
        "name it in the bindings, `mpi: {library: PATH}`; stackyard bindings detect, on a compute node, writes it",
    )  # fmt: skip


def _cleaned(policy: ContainerPolicy) -> Iterator[Finding]:
    if policy.cleaning:
        yield Finding(
            "cleanenv", "refused", f"{policy.cleaning} removes the launcher's variables inside the image",
            "every rank would be rank 0 of 1, and exit with status 0",
            "remove it from `options` of launch.container",
        )  # fmt: skip


def _places(image: Tree, policy: ContainerPolicy) -> Iterator[Finding]:
    lacking = without_a_place(image, policy.binds) if policy.runtime == "charliecloud" else []
    if lacking:
        yield Finding(
            "mount-point", "refused", f"{some(lacking, _SHOWN)} not found in the image",
            "Charliecloud binds only over what an image has: it would start no program",
            "make an empty directory, or file, in the image for each",
        )  # fmt: skip


def _names(seen: View) -> Iterator[Finding]:
    """Findings for libraries bound under a name that nothing needs."""
    for name, file in seen.libraries.items():
        elf = read_elf(file)
        if elf is not None and elf.soname and elf.soname != name and elf.soname not in seen.libraries:
            better = file.with_name(elf.soname)
            yield Finding(
                "library-name", "refused", f"{file} is bound as {name}, and programs ask for {elf.soname}",
                f"CONTAINLIBS binds a file under its own name, in {LIBRARIES}: the image's own {elf.soname} would be "
                "used, with exit status 0",
                f"name the link instead: {better}" if better.exists() else f"bind it: {file}:{LIBRARIES}/{elf.soname}",
            )  # fmt: skip


def _pmi(request: BindingRequest) -> Iterator[Finding]:
    kinds, pmi = request.bindings.mpi.pmi, request.pmi
    if not pmi or not kinds or any(pmi == kind or pmi.startswith(f"{kind}_") for kind in kinds):
        return
    yield Finding(
        "pmi", "refused", f"MPI programs are started with --mpi={pmi}, and the host's MPI needs {' or '.join(kinds)}",
        "every rank would be rank 0 of 1, and exit with status 0",
        f"site.yaml: scheduler: {{mpi: {kinds[0]}}}; with srun itself: --mpi={kinds[0]}",
    )  # fmt: skip


def _of_users(
    users: Sequence[User], seen: View, bindings: HostBindings, loads: dict[str, str], rpaths: dict[str, None]
) -> Iterator[Finding]:
    host, closures = _host(bindings), list[Closure]()
    others: dict[Finding, dict[str, None]] = {}
    if not users:
        yield Finding(
            "no-mpi-program", "note", "no program or library of the image is linked to an MPI",
            "what opens an MPI by dlopen, as mpi4py's wheels do, is seen only when it runs",
            "stackyard bindings check --run LAUNCHER IMAGE -- PROGRAM shows what it loads",
        )  # fmt: skip
    for user in users:
        closures.append(closure := seen.loader.closure([user.path], preload=seen.preload))
        for name in user.needs:
            item = closure.get(name)
            if name in mpi_sonames():
                loads[user.path] = f"{'host' if item and seen.is_host(item) else 'image'}:{item.inside if item else ''}"
            if host is not None and (item is None or not seen.is_host(item)):
                finding = _own(user, name, item, seen, host)
                others.setdefault(finding, {})[user.path] = None
                if finding.rule == "rpath" and item is not None:
                    rpaths[item.rule.removeprefix("RPATH of ")] = None
    yield from (_of_files(shared, list(files)) for shared, files in others.items())
    yield from _missing(closures, seen)
    yield from version_findings(closures, seen)


def _of_files(finding: Finding, files: Sequence[str]) -> Finding:
    """A finding whose message continues after a file's name, for several files."""
    more = f"; so do {some(files[1:], _SHOWN)}" if len(files) > 1 else ""
    return replace(finding, message=f"{files[0]} {finding.message}{more}")


def _own(user: User, name: str, item: LoadedFile | None, seen: View, host: _Host) -> Finding:
    """The finding for a program that loads another MPI than the host's. The message continues after its name."""
    own = known_mpi(item.elf.path) if item else None
    abi = own.family.abi if own else _abi_of(name)
    loaded = f"loads {item.inside} of the image, not {host.library}" if item else f"does not find {name}"
    if host.elf is not None and host.elf.machine != user.elf.machine:
        return Finding(
            "architecture", "refused", f"is for {user.elf.machine}, the host's MPI for {host.elf.machine}",
            "the loader passes over libraries of other architectures", "use an image for this architecture",
        )  # fmt: skip
    if abi != host.known.family.abi:
        title = own.title if own else next((f.title for f in families() if f.abi == abi), name)
        return Finding(
            "mpi-family", "refused", f"is linked to {title} ({name}), and the host's MPI is {host.known.title}",
            "an MPI cannot take the place of one with another ABI: the image's own would run, each rank alone",
            f"build the image with an MPI of {host.known.title}'s ABI, or bind the host's {title}: "
            "stackyard bindings detect --mpi PATH",
        )  # fmt: skip
    if item is not None and item.rule.startswith("RPATH"):
        return Finding(
            "rpath", "refused", f"{loaded}: the {item.rule} comes before LD_LIBRARY_PATH",
            f"the image's own {own.title if own else name} would run, with exit status 0",
            "stackyard bindings check --repair DIR IMAGE binds a copy over it whose RPATH is a RUNPATH",
        )  # fmt: skip
    return _unprovided(name, item, seen, host.library, loaded)


def _unprovided(name: str, item: LoadedFile | None, seen: View, library: Path, loaded: str) -> Finding:
    """The finding for a program that could use the host's MPI, if that were bound under this name and searched."""
    reason = f"it was found by {item.rule}; the image's own MPI would run, with exit status 0" if item else ""
    directory = library.parent
    if name in seen.libraries and not seen.searched:
        return Finding(
            "libraries-not-searched", "refused", loaded, f"{LIBRARIES} is not on its library path",
            f"set LD_LIBRARY_PATH: {LIBRARIES} in `variables` of launch.container",
        )  # fmt: skip
    if name in companion_sonames():
        remedy = f"add {directory / name} to `libraries`, if the host has it"
    elif (directory / name).exists():
        remedy = f"add {directory / name} to `libraries`, or its directory to `library_path`"
    else:
        remedy = f"bind it under that name: {{path: {library}, to: {LIBRARIES}/{name}}}"
    return Finding("mpi-own", "refused", loaded, reason, remedy)


def _abi_of(name: str) -> str:
    return next((family.abi for family in families() if name in (*family.sonames, *family.companions)), "")


def _missing(closures: Iterable[Closure], seen: View) -> Iterator[Finding]:
    """Findings for libraries that the host's libraries need, and that neither bindings nor image have."""
    lost: dict[str, dict[str, None]] = {}
    for library in (absent for closure in closures for absent in closure.missing if seen.is_host(absent.by)):
        lost.setdefault(library.name, {})[str(library.by.elf.path)] = None
    for name, needing in lost.items():
        yield Finding(
            "library-missing", "refused", f"{name} not found in the image, required by {some(list(needing), _SHOWN)}",
            "the program does not start", f"add the host's {name} to `libraries`",
        )  # fmt: skip


def _of_components(
    users: Sequence[User], seen: View, bindings: HostBindings, loads: dict[str, str]
) -> Iterator[Finding]:
    """Findings for missing dependencies of the host MPI's components."""
    user = next((user.path for user in users if loads.get(user.path, "").startswith("host:")), "")
    directories = {name for part in parts() for name in part.directories}
    places = [bind.to or bind.path for bind in bindings.binds if Path(bind.to or bind.path).name in directories]
    files = [path for place in places for path in files_below(seen.loader.tree, place) if ".so" in Path(path).name]
    if not user or not files:
        return
    known = {item.elf.path for item in seen.loader.closure([user], preload=seen.preload).loaded}
    closure = seen.loader.closure([user, *files], preload=seen.preload)
    lost = [library for library in closure.missing if seen.is_host(library.by)]
    if lost:
        names = some([library.name for library in lost], 2 * _SHOWN)
        yield Finding(
            "component-missing", "warning",
            f"components of the host's MPI need what the image does not have: {names}", _LEFT_OUT,
            "add them to `libraries`, from where `ldconfig -p` of the host has them",
        )  # fmt: skip
    for finding in version_findings([closure], seen, besides=known):
        yield replace(finding, rule="component-version", severity="warning", reason=_LEFT_OUT)


_LEFT_OUT = "such a component is left out without a word, and a slower one is used"


def _of_drivers(inside: Contents, drivers: Iterable[Driver]) -> Iterator[Finding]:
    drivers = tuple(drivers)
    for toolkit in newest(inside.toolkits):
        for driver in drivers:
            finding = check_driver(toolkit, driver) if driver.vendor == toolkit.vendor else None
            if finding:
                yield finding


def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without duplicates, the most severe first."""
    order = {"refused": 0, "warning": 1, "note": 2}
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: order[finding.severity]))
