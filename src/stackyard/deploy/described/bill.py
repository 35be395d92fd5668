"""The software bill of materials of a revision, whatever its format: what is in it, and what is not known of it.

Made of the record and the lock that the revision keeps, without a network. One revision is one variant for one
platform, and so is its bill.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from uuid import NAMESPACE_URL, UUID, uuid5

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted, some
from stackyard.core.late import dataclass
from stackyard.core.names import canonical, conda_name, distributions, pip_name
from stackyard.deploy.described.packages import Key, locked_of, packages_of
from stackyard.deploy.described.purl import generic, purl_of, vcs_url
from stackyard.host.files import at
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, PackageRecord

_SHOWN = 10


@dataclass(frozen=True)
class Component:
    """One package. `purl` identifies it in the bill.

    Attributes:
        hashes: the hexadecimal digests of its archive, by ``sha256`` and ``md5``; empty: unknown.
        url: where its archive is, or of a commit; empty: unknown, or on this machine only.
        needs: the purls of the packages that it requires.
        of_base: an extension has it from its base.
    """

    name: str
    version: str
    purl: str
    hashes: Mapping[str, str]
    licence: str = ""
    url: str = ""
    needs: tuple[str, ...] = ()
    of_base: bool = False


@dataclass(frozen=True)
class Bill:
    """The bill of a revision.

    Attributes:
        number: the same for the same lock, on the same base.
        lock_sha256: the hash of the lock that the revision keeps; empty: it has none.
        direct: the purls of the packages that were asked for, or that no other needs.
        notes: a sentence for each thing that is not known.
        facts: what else is recorded, by name.
    """

    record: BuildRecord
    number: UUID
    lock_sha256: str
    components: tuple[Component, ...]
    direct: tuple[str, ...]
    notes: tuple[str, ...]
    facts: Mapping[str, str]

    @property
    def version(self) -> str:
        """The version of the stack with variant and revision: the module without the name of the stack."""
        return self.record.module.partition("/")[2] or self.record.version

    @property
    def is_opaque(self) -> bool:
        """Whether its packages are unknown: it is a wrapped image."""
        return self.record.payload.is_system


def bill_of(record: BuildRecord) -> Bill:
    """The bill of materials of a revision of any kind; what cannot be read is a note in it."""
    locked, digest, packages = locked_of(record), lock_hash(record), packages_of(record)
    components = (*_interpreter(record, packages), *_components(packages, locked))
    facts = {
        "module": record.module, "platform": record.platform, "variant": record.variant, "created": record.created,
        "form": record.form.kind, "image sha256": record.form.sha256, "input hash": record.input_hash,
        "lock sha256": digest, "base": record.base_id, "base input hash": record.base_hash,
        "adopted from": record.origin.adopted_from, **_image(record),
    }  # fmt: skip
    return Bill(
        record, uuid5(NAMESPACE_URL, _identity(record, digest)), digest, components, _direct(components, locked),
        tuple(_notes(record, components, digest, locked)), {name: text for name, text in facts.items() if text},
    )  # fmt: skip


def lock_hash(record: BuildRecord) -> str:
    """The sha256 of the lock that a revision keeps; empty: it cannot be read."""
    try:
        return hashlib.sha256(at.read_regular(RevisionPaths.of(record.path).lock)).hexdigest()
    except (OSError, StackyardError):
        return ""


def _identity(record: BuildRecord, digest: str) -> str:
    parts = (digest, record.base_hash, record.container.get("digest", ""))
    return "stackyard:lock:" + ":".join(filter(None, parts)) if digest else f"stackyard:input:{record.input_hash}"


def _image(record: BuildRecord) -> dict[str, str]:
    """The facts of a wrapped image, with its source unless that is a file of this machine."""
    source = str(record.container.get("source", ""))
    return {"image digest": str(record.container.get("digest", "")), "image source": source if "//" in source else ""}


def _interpreter(record: BuildRecord, packages: tuple[PackageRecord, ...]) -> Iterable[Component]:
    """The Python that is not a package: of the host, or one that uv downloaded."""
    python = record.interpreter
    if python.get("source") in ("host", "uv") and not any(p.name == "python" for p in packages):
        version, digest = python.get("version", ""), python.get("sha256", "")
        yield Component("python", version, generic("python", version), {"sha256": digest} if digest else {})


def _components(packages: tuple[PackageRecord, ...], locked: LockedVariant | None) -> tuple[Component, ...]:
    conda = {p.name: p for p in locked.conda} if locked else {}
    pip = {canonical(p.name): p for p in locked.pip} if locked else {}
    own = [(p, None if p.of_base else conda.get(p.name), None if p.of_base else pip.get(canonical(p.name)))
           for p in packages]  # fmt: skip
    purls: dict[Key, str] = {(p.kind, _name(p)): purl_of(p, as_pip) for p, _, as_pip in own}
    provided = _provided(packages, conda, purls)
    return tuple(
        {purls[p.kind, _name(p)]: _component(p, as_conda, as_pip, purls, provided) for p, as_conda, as_pip in own}
        .values()
    )  # fmt: skip


def _name(package: PackageRecord) -> str:
    return package.name if package.kind == "conda" else canonical(package.name)


def _provided(
    packages: Iterable[PackageRecord], conda: Mapping[str, CondaPackage], purls: Mapping[Key, str]
) -> dict[str, str]:
    """The purl of what satisfies a requirement of pip: a pip package, else the conda package that brings it."""
    provided: dict[str, str] = {}
    for package in packages:
        if package.kind == "conda":
            known = conda[package.name].purls if package.name in conda else ()
            names = distributions(package.name, known, package.requires)
            provided |= dict.fromkeys(names, purls["conda", package.name])
    return provided | {name: purl for (kind, name), purl in purls.items() if kind == "pip"}


def _component(
    package: PackageRecord, as_conda: CondaPackage | None, as_pip: PipPackage | None,
    purls: Mapping[Key, str], provided: Mapping[str, str],
) -> Component:  # fmt: skip
    own = purls[package.kind, _name(package)]
    if package.kind == "conda":
        needs = {purls.get(("conda", conda_name(spec)), "") for spec in package.requires}
    else:
        needs = {provided.get(pip_name(line), "") for line in package.requires}
    url = vcs_url(as_pip) if as_pip and as_pip.kind == "vcs" else package.url
    digests = {"sha256": package.sha256, "md5": as_conda.md5 if as_conda else ""}
    return Component(
        package.name, package.version, own, {name: text for name, text in digests.items() if text}, package.licence,
        url if "://" in url and not url.startswith("file:") else "", tuple(sorted(needs - {"", own})), package.of_base,
    )  # fmt: skip


def _direct(components: tuple[Component, ...], locked: LockedVariant | None) -> tuple[str, ...]:
    needed = {purl for component in components for purl in component.needs}
    asked = {_asked(text) for text in locked.requested} if locked else set()
    return tuple(c.purl for c in components if c.purl not in needed or canonical(c.name) in asked)


def _asked(requirement: str) -> str:
    """The canonical name of a requirement of a lock: a MatchSpec, or a pip requirement after ``pip: ``."""
    if requirement.startswith("pip: "):
        return pip_name(requirement.removeprefix("pip: "))
    return canonical(conda_name(requirement))


def _notes(
    record: BuildRecord, components: tuple[Component, ...], digest: str, locked: LockedVariant | None
) -> Iterable[str]:
    if record.payload.is_system:
        yield "the packages inside the wrapped image are not known"
    if record.origin.adopted_from:
        yield "adopted: what was found in the prefix then; its owner may have changed it since"
    if not digest:
        yield "the lock cannot be read: commits, MD5 hashes and the packages that were asked for are not known"
    elif locked is None:
        yield "the lock is damaged: commits, MD5 hashes and the packages that were asked for are not known"
    if record.base_id:
        yield f"of the packages of the base {record.base_id} the MD5 hashes are left out: they are in its own bill"
    for what, names in (
        ("licence", [c.name for c in components if not c.licence]),
        ("hash of the archive", [c.name for c in components if not c.hashes]),
    ):
        if names:
            yield f"{counted(len(names), 'package')} without a known {what}: {some(names, _SHOWN)}"
