"""Signatures of revisions, and a yard's demands for them.

    <yard>/signatures.json the demands in its site's file at the last write
    <yard>/stacks/<stack>/<revision>/signatures/<key>.sig   one for each signer, by the hash of the key

A signature covers the hashes of ``record.json``, which has those of all files, and of ``module.json``, which has the
module's operations (`statement`). Demands are read from the revision's yard, never from files or variables of its user.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from stackyard.core.errors import ChecksFailed, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at, strictmodes
from stackyard.host.tools import sshkeygen
from stackyard.host.tools.sshkeygen import Signers, Verdict
from stackyard.yard import checksum, disk, formats, members
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, within

NAMESPACE = "revision@stackyard.io"
"""What ssh-keygen signs into a signature, so that one of a mail or a commit is none of a revision."""

NONE = "it has no signature"
_MOST_BYTES = 64 << 10
_NO_FILE = (errno.ENOENT, errno.ELOOP, errno.ENXIO)
"""What opening a file says of one that was removed, of a link and of a socket."""
What = Literal["load", "extend", "pull", "launch"]


@dataclass(frozen=True)
class Demand:
    """The demand of a yard: which uses need a valid signature, and from which signers.

    Attributes:
        allowed_signers, revoked: absolute paths; they are read at each check.
        users: whether it also applies to yards that have this one as parent, or extend its revisions.
        site: the file with the demand.
        yard: the root of the demanding yard, if it was read from one.
    """

    allowed_signers: str = ""
    revoked: str = ""
    require: tuple[What, ...] = ()
    users: bool = False
    site: str = ""
    yard: str = ""

    @property
    def signers(self) -> Signers:
        """The lists of signers. The owners of the site's file or the yard may write to them."""
        owners = strictmodes.owners_of(filter(None, (self.site, self.yard)))
        return Signers(self.allowed_signers, self.revoked, owners)


KIND = formats.Kind(
    1, lambda value: members.make(Demand, value), checked_since=1,
    hint=lambda path: f"`stackyard --yard {path.parent} sign --all` writes it again, from the site's file",
)  # fmt: skip
"""``signatures.json`` of a yard."""


@dataclass(frozen=True)
class Signature:
    """One signature of a revision: the key's fingerprint, its signer, and its problem; empty: none.

    `signer` and problem are empty if the yard has no lists of signers.
    """

    key: str
    signer: str = ""
    problem: str = ""
    checked: bool = True

    def __str__(self) -> str:
        if not self.checked:
            return f"{self.key}, not checked: the yard does not say who may sign"
        return self.problem or f"{self.signer} ({self.key})"


# --------------------------------------------------------------------------- the demand


def demand_of(yard: Yard) -> Demand | None:
    """The demand of a yard; None: none. Raises StackyardError if it cannot be read."""
    if not disk.is_there(yard.signatures):
        return None
    return replace(formats.load(yard.signatures, KIND), yard=str(yard.root))


def demanded_by(yard: Yard) -> str:
    """The site's file from which a yard's demand was noted; empty: none, or the note is damaged."""
    try:
        demand = demand_of(yard)
    except StackyardError:
        return ""
    return demand.site if demand else ""


def keep_demand(yard: Yard, demand: Demand | None) -> None:
    """Note the demand of a yard, if it changed."""
    if demand is None:
        within.unlink(yard.root, yard.signatures)
        return
    keys = ("allowed_signers", "revoked", "require", "users", "site")
    value = {"format": 1, **{key: getattr(demand, key) for key in keys}}
    try:
        if demand_of(yard) == replace(demand, yard=str(yard.root)):
            return
    except StackyardError:
        pass  # a damaged one is written again
    atomic.write_json(yard.signatures, value, checked=True, top=yard.root)


def demands(root: Path, others: Iterable[Path] = ()) -> Iterator[tuple[Path, Demand]]:
    """The demands on revisions of a yard, each with the demanding yard.

    Args:
        others: the yards above it, and those of bases, whose demands on users' yards apply.
    """
    known = {os.path.realpath(root)}
    if (own := demand_of(Yard(root))) is not None:
        yield root, own
    for other in others:
        if os.path.realpath(other) not in known:
            known.add(os.path.realpath(other))
            demand = demand_of(Yard(other))
            if demand is not None and demand.users:
                yield other, demand


def demands_in(yard: Yard, what: What) -> list[tuple[Path, Demand]]:
    """The demands on every revision of a yard for one use."""
    return [pair for pair in demands(yard.root, [above.root for above in yard.above()]) if what in pair[1].require]


# --------------------------------------------------------------------------- one revision


def statement(paths: RevisionPaths) -> str:
    """The text to sign. Raises StackyardError: the record cannot be read."""
    return statement_of(_record(paths), disk.content(paths.module))


def statement_of(record: bytes, module: bytes | None) -> str:
    """The text to sign, from the bytes of ``record.json`` and ``module.json``; None: the file does not exist."""
    return f"stackyard-revision 1\nrecord {_sha256(record)}\nmodule {'-' if module is None else _sha256(module)}\n"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record_text(paths: RevisionPaths) -> str:
    """The text of the record on disk, which is what was signed."""
    return _record(paths).decode("utf-8")


def _record(paths: RevisionPaths) -> bytes:
    """The bytes of the record; of its identical copy if it is damaged."""
    for path in (paths.record, paths.spare):
        data = disk.content(path)
        try:
            if data is not None:
                checksum.remove(data.decode("utf-8"))
                return data
        except ValueError:
            continue
    raise StackyardError(f"cannot read {paths.record}: damaged", hint="restore it: `stackyard verify --repair`")


def files(paths: RevisionPaths) -> list[Path]:
    """The signature files of a revision."""
    return [path for path in sorted(disk.entries(paths.signatures)) if path.suffix == ".sig"]


def texts(paths: RevisionPaths) -> tuple[str, ...]:
    """The contents of the signature files; without invalid files, which `broken` finds."""
    return tuple(text for text in map(_text, files(paths)) if text)


def _text(file: Path) -> str:
    """The content of a signature file; empty if it is not a regular file, such as another account's pipe."""
    try:
        with at.parent(RevisionPaths(file.parents[1]).yard, file) as place:
            return at.read_bounded(*place, _MOST_BYTES)[0].decode("utf-8", "replace")
    except at.UnexpectedFileError:
        return ""
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return ""


def add(paths: RevisionPaths, text: str) -> str:
    """Store a signature beside the signed record; returns the key's fingerprint. Raises ValueError: it is invalid."""
    atomic.write_text(place_of(paths, text), text, top=paths.yard)
    return sshkeygen.fingerprint(text)


def place_of(paths: RevisionPaths, text: str) -> Path:
    """The path for a signature, by its key. Raises ValueError: it is invalid."""
    return paths.signature(_sha256(sshkeygen.fingerprint(text).encode())[:32])


def signatures(paths: RevisionPaths, demand: Demand | None) -> list[Signature]:
    """All signatures of a revision, judged by a yard's lists of signers."""
    return [_signature(file, statement(paths), demand) for file in files(paths)]


def _signature(file: Path, text: str, demand: Demand | None) -> Signature:
    return judgement(_text(file), text, demand, f"{file}: ")


def judgement(data: str, text: str, demand: Demand | None, origin: str = "") -> Signature:
    """A yard's judgement of a text's signature. `origin`: the prefix of the problem with an invalid one."""
    try:
        key = sshkeygen.fingerprint(data)
    except ValueError as error:
        return Signature("", problem=f"{origin}{error}")
    if demand is None or not demand.allowed_signers:
        return Signature(key, checked=False)
    verdict = judged(text, data, demand.signers)
    return Signature(key, verdict.signer, verdict.problem)


def judged(text: str, signature: str, signers: Signers) -> Verdict:
    """`sshkeygen.judge`, cached for the same signature and the same signers."""
    signers.require()
    stamps = tuple(_stamp(path) for path in (signers.allowed, signers.revoked) if path)
    return _judged(text, signature, signers, stamps)


@lru_cache(maxsize=4096)
def _judged(text: str, signature: str, signers: Signers, _stamps: tuple[object, ...]) -> Verdict:
    return sshkeygen.judge(text, signature, signers, NAMESPACE)


def broken(paths: RevisionPaths) -> Iterator[tuple[Path, str]]:
    """Files that are not valid signatures, by any signer, of the present revision, with the reason."""
    text = statement(paths)
    for file in files(paths):
        try:
            key = sshkeygen.fingerprint(_text(file))
            if other := sshkeygen.other_namespace(_text(file), NAMESPACE):
                yield file, other
            elif not sshkeygen.fits(text, _text(file), NAMESPACE):
                yield file, f"it, or what it signs, was changed after {key} had signed"
        except ValueError as error:
            yield file, f"is {error}"


def _stamp(file: str) -> tuple[str, int, int]:
    status = Path(file).stat()
    return file, status.st_mtime_ns, status.st_size


def problem(paths: RevisionPaths, demand: Demand) -> str:
    """Why a revision does not meet a demand, as a sentence; empty: it has a valid signature."""
    return _problem(signatures(paths, demand))


def problem_of(text: str, signature_texts: Iterable[str], demand: Demand) -> str:
    """As `problem`, for signatures of a statement that are not yet in a revision."""
    return _problem([judgement(data, text, demand) for data in signature_texts])


def _problem(checks: Sequence[Signature]) -> str:
    if not checks:
        return NONE
    return "" if any(not signature.problem for signature in checks) else checks[0].problem


# --------------------------------------------------------------------------- a use of it


def require(record: BuildRecord, what: What, yard: Yard | None = None) -> None:
    """Require that a revision, and each of its bases, has the signatures demanded for a use.

    Args:
        yard: the user's yard, since demands of its parents on users' yards apply too.

    Raises:
        ChecksFailed: a signature is missing or not valid.
        StackyardError: that cannot be determined.
    """
    for root, ancestor, why in _problems(record.lineage(_readable), what, yard):
        raise ChecksFailed(
            f"cannot {what} {record.module}: {_of(ancestor, record)}{why}, and {root} demands a valid signature",
            hint=f"who answers for it compares it (`stackyard verify --deep {ancestor.module}`) and signs it: "
            f"`stackyard sign {ancestor.module}`",
        )


def refusals(entries: Iterable[Entry], records: Mapping[str, BuildRecord], yard: Yard) -> dict[str, str]:
    """Why revisions may not be loaded, by module, for the messages of their modulefiles."""
    reasons, below = {}, cache(_readable)  # most extensions of a yard have one base
    for entry in entries:
        if entry.module in records and entry.state != "removed":
            record = records[entry.module]
            for _, ancestor, why in _problems(record.lineage(below), "load", yard):
                reasons[entry.module] = f"{entry.module} may not be loaded: {_of(ancestor, record)}{why}"
                break
    return reasons


def misplaced(record: BuildRecord) -> str:
    """A sentence if a record belongs to another directory than its own, so that its signatures prove nothing."""
    paths = RevisionPaths.of(record.path)
    return "" if revisions.readable(paths) == record else f"its record is not the one in {paths.root}"


def _of(ancestor: BuildRecord, record: BuildRecord) -> str:
    return "" if ancestor is record else f"{ancestor.module}, its base: "


def _readable(base: BaseRevision) -> BuildRecord | None:
    return revisions.readable(base.paths)


def _problems(chain: Iterable[BuildRecord], what: What, yard: Yard | None) -> Iterator[tuple[Path, BuildRecord, str]]:
    line = list(chain)
    roots = [RevisionPaths.of(ancestor.path).yard for ancestor in line]
    for number, record in enumerate(line):
        others = [*_above(roots[number], yard), *roots[number + 1 :]]
        for root, demand in demands(roots[number], others):
            why = misplaced(record) or problem(RevisionPaths.of(record.path), demand) if what in demand.require else ""
            if why:
                yield root, record, why


def _above(root: Path, yard: Yard | None) -> list[Path]:
    """The parents of a revision's yard, as seen by its user."""
    line = [os.path.realpath(ancestor.root) for ancestor in yard.lineage()] if yard else []
    real = os.path.realpath(root)
    return [Path(place) for place in line[line.index(real) + 1 :]] if real in line else []
