"""A prefix relocated to its path in an image: changed files are written elsewhere, the others are read in place.

Besides the path, these change: installers' notes on time, source and command, which would make equal builds differ;
RECORD files, which get the new hashes; bytecode of changed sources, which is compiled again.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from mmap import mmap
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError, cause
from stackyard.core.findings import some
from stackyard.host.files.hashing import sha256_file, urlsafe
from stackyard.host.run.command import run
from stackyard.images.oci.layers import Entry, mode_of
from stackyard.images.relocation.paths import Moves, too_long
from stackyard.make.bytecode import bytecode_worker
from stackyard.make.bytecode.pyfiles import source_of
from stackyard.make.hashes.tree import CONDA_ORIGINS
from stackyard.make.job import cores
from stackyard.yard.revision.contents import Tree, scan

_NOTES = re.compile(r"\.dist-info/(direct_url\.json|uv_cache\.json)$")
"""Of a distribution: where it was installed from."""
COMPILE_S = 1800.0
_PIECE = 4 << 20
"""Bytes of a file that are looked through at a time."""
_BATCH = 64
"""Files that a thread takes at a time: to hand over each by itself takes longer than to read it."""


@dataclass
class RelocatedPrefix:
    """A prefix at its path in the image.

    Attributes:
        entries: files, links and empty directories, by their path in the prefix.
        programs: the ELF files, whose needs the C library of the base must satisfy.
        outside: links that lead out of it, with their targets.
        changed, dropped: files and links that differ from those of the prefix; files that are left out.
        traces: files that name other directories of the yard.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    outside: dict[str, str] = field(default_factory=dict)
    traces: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _FileTraits:
    """Traits of a file's content: a relocated path; the yard's path; ELF's magic number; a null character."""

    moves: bool
    yard: bool
    elf: bool
    binary: bool


class Relocation:
    """The relocation of one prefix into an image."""

    def __init__(self, tree: Path, root: str, moves: Moves, work: Path, yard: Path) -> None:
        """Set the parameters.

        Args:
            tree: the directory.
            root: its path in the image, with the leading slash.
            work: an empty directory for changed files.
            yard: the path that no file should contain afterwards.
        """
        self._tree, self._root, self._moves, self._work = tree, root.lstrip("/"), moves, work
        self._yard = f"{yard}/".encode()
        self._changed: dict[str, Path] = {}
        self._dropped: set[str] = set()

    def relocate(self, python: Path | None) -> RelocatedPrefix:
        """Write all changed files.

        Args:
            python: the interpreter that compiles changed sources; None: omit their bytecode.

        Raises:
            InputError: it has a file that an image cannot have, or a binary file has no room for the new path.
            StackyardError: a file cannot be read.
        """
        tree = scan(self._tree)
        files = sorted(name for name, status in tree.items() if stat.S_ISREG(status.st_mode))
        self._refuse(tree)
        batches = [files[start : start + _BATCH] for start in range(0, len(files), _BATCH)]
        with ThreadPoolExecutor(cores()) as pool:
            seen = dict(row for rows in pool.map(self._look_at, batches) for row in rows)
        room = self._made_for_any_prefix()
        for name in files:
            if seen[name].moves:
                self._move(name, seen[name], name in room)
        self._neutral(files)
        self._compile([name for name in files if name.endswith(".pyc")], python)
        self._note_hashes(files)
        return self._result(tree, seen)

    def _refuse(self, tree: Tree) -> None:
        from stackyard.images.squashfs.file import special

        problems = [f"{what}: {name}" for name, what in special(self._tree)]
        if problems:
            raise InputError(f"cannot pack {self._tree}: {some(problems, 3)}",
                             hint="remove them in the stack's post script")  # fmt: skip

    def _look_at(self, names: Sequence[str]) -> list[tuple[str, _FileTraits]]:
        return [(name, self._look(name)) for name in names]

    def _look(self, name: str) -> _FileTraits:
        """The properties of a file, read in overlapping pieces, since a library may have gigabytes."""
        moves = yard = elf = binary = False
        overlap = self._moves.reach + len(self._yard)
        place = self._changed.get(name, self._tree / name)
        try:
            with place.open("rb") as stream:
                data = stream.read(_PIECE)
                elf = data.startswith(b"\x7fELF")
                while data:
                    more = stream.read(_PIECE)
                    moves = moves or self._moves.found_in(data, more[:2])
                    yard, binary = yard or self._yard in data, binary or b"\0" in data
                    data = data[-overlap:] + more if more else b""
        except OSError as error:
            raise StackyardError(f"cannot read {place}: {cause(error)}") from error
        return _FileTraits(moves, yard, elf, binary)

    def _read(self, name: str) -> bytes:
        """The present content of a file; only for texts and notes, not for libraries."""
        place = self._changed.get(name, self._tree / name)
        try:
            return place.read_bytes()
        except OSError as error:
            raise StackyardError(f"cannot read {place}: {cause(error)}") from error

    def _place(self, name: str) -> Path:
        """The path of a changed file in the work directory."""
        return self._changed.setdefault(name, self._work / f"changed-{len(self._changed)}")

    # ------------------------------------------------------------------- what changes

    def _made_for_any_prefix(self) -> set[str]:
        """The binary files in which conda has left room for a long prefix."""
        names = set()
        for file in self._conda_files():
            for path in json.loads(self._read(file)).get("paths_data", {}).get("paths", ()):
                if path.get("prefix_placeholder") and path.get("file_mode") == "binary":
                    names.add(str(path["_path"]))
        return names

    def _conda_files(self) -> list[str]:
        directory = self._tree / "conda-meta"
        return sorted(f"conda-meta/{path.name}" for path in directory.glob("*.json")) if directory.is_dir() else []

    def _move(self, name: str, seen: _FileTraits, has_room: bool) -> None:
        if not seen.binary:
            data = self._moves.in_text(self._read(name))
            self._place(name).write_bytes(data)
            return
        for old, new in self._moves.pairs if has_room else ():
            if len(new) > len(old):
                raise too_long(name, old, new)
        entry = self._place(name)
        shutil.copyfile(self._tree / name, entry)
        with entry.open("r+b") as stream, mmap(stream.fileno(), 0) as mapped:
            if has_room:
                self._moves.in_strings(mapped)
            else:
                self._moves.in_binary(mapped, name)

    def _neutral(self, files: Iterable[str]) -> None:
        """Remove the time, source and command of the installation from files."""
        for name in self._conda_files():
            value = json.loads(self._read(name))
            fields = {key: item for key, item in value.items() if key not in CONDA_ORIGINS}
            for path in fields.get("paths_data", {}).get("paths", ()):
                if (changed_file := self._changed.get(str(path["_path"]))) is not None:
                    digest = sha256_file(changed_file)
                    own = {"sha256": digest} if path.get("path_type") == "unix_python_entry_point" else {}
                    path |= {"sha256_in_prefix": digest, "size_in_bytes": changed_file.stat().st_size, **own}
            self._place(name).write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        if (self._tree / "conda-meta" / "history").exists():
            self._place("conda-meta/history").write_bytes(b"")
        self._dropped |= {name for name in files if _NOTES.search(name) and self._names_a_file(name)}

    def _names_a_file(self, name: str) -> bool:
        return name.endswith("uv_cache.json") or b'"file://' in self._read(name)

    def _compile(self, bytecode: Iterable[str], python: Path | None) -> None:
        """Compile the changed sources that have bytecode."""
        sources = {name: source for name in bytecode if (source := source_of(name)) in self._changed}
        self._dropped |= sources.keys()
        if python is None or not sources:
            return
        tasks, results = [], {}
        for number, (name, source) in enumerate(sorted(sources.items())):
            text, results[name] = self._work / f"{number}.py", self._work / f"{number}.pyc"
            text.write_bytes(self._read(source))
            tasks.append((str(results[name]), str(text), source))
        order = json.dumps({"workers": min(cores(), 1 + len(tasks) // 64), "tasks": tasks})
        run([python, "-I", "-S", "-B", bytecode_worker.__file__], stdin=order, timeout_s=COMPILE_S)
        for name, file in results.items():
            if file.exists():
                self._changed[name] = file
                self._dropped.discard(name)

    def _note_hashes(self, files: Iterable[str]) -> None:
        """Update the hashes of changed files in each RECORD, and drop omitted files."""
        for name in files:
            if name.endswith(".dist-info/RECORD"):
                base = os.path.dirname(os.path.dirname(name))  # noqa: PTH120 - a relative path in the prefix
                text = self._read(name).decode("utf-8", "surrogateescape")
                record = self._record(text, base)
                if record != text:
                    self._place(name).write_bytes(record.encode("utf-8", "surrogateescape"))

    def _record(self, text: str, base: str) -> str:
        out = io.StringIO()
        rows = csv.writer(out, lineterminator="\n")
        for row in csv.reader(io.StringIO(text, newline="")):
            name = os.path.normpath(f"{base}/{row[0]}") if row else ""
            if name in self._dropped or not row:
                continue
            rows.writerow(
                [row[0], *_hashed(self._changed[name])] if name in self._changed and row[1:2] != [""] else row
            )
        return out.getvalue()

    # ------------------------------------------------------------------- the result

    def _result(self, tree: Tree, seen: Mapping[str, _FileTraits]) -> RelocatedPrefix:
        result = RelocatedPrefix(programs=[name for name, traits in seen.items() if traits.elf])
        full = {name.rstrip("/").rpartition("/")[0] for name in tree}
        for name, status in sorted(tree.items()):
            if name in self._dropped or (name.endswith("/") and name[:-1] in full):
                continue
            result.entries[name.rstrip("/")] = self._entry(name.rstrip("/"), status)
        result.outside = {name: entry.target for name, entry in result.entries.items() if self._leads_out(entry)}
        result.changed = [name for name, entry in result.entries.items() if self._differs(name, entry)]
        result.dropped = sorted(self._dropped)
        result.traces = [name for name, traits in seen.items() if traits.yard and self._names_the_yard(name)]
        return result

    def _names_the_yard(self, name: str) -> bool:
        """Whether a file that contained the yard's path still does."""
        if name in self._dropped:
            return False
        return name not in self._changed or self._look(name).yard

    def _differs(self, name: str, entry: Entry) -> bool:
        return name in self._changed or bool(entry.target and entry.target != str((self._tree / name).readlink()))

    def _entry(self, name: str, status: os.stat_result) -> Entry:
        inside = f"{self._root}/{name}"
        if stat.S_ISLNK(status.st_mode):
            return Entry(inside, target=self._moves.path(str((self._tree / name).readlink())))
        if stat.S_ISDIR(status.st_mode):
            return Entry(inside, mode=0o755, directory=True)
        changed_file = self._changed.get(name)
        if changed_file is None:
            return Entry(inside, str(self._tree / name), size=status.st_size, mode=mode_of(status))
        return Entry(inside, str(changed_file), size=changed_file.stat().st_size, mode=mode_of(status))

    def _leads_out(self, entry: Entry) -> bool:
        if not entry.target:
            return False
        target = os.path.normpath(os.path.join("/", os.path.dirname(entry.name), entry.target))  # noqa: PTH118, PTH120
        return not any(target == new or target.startswith(f"{new}/") for _, new in self._moves.pairs)


def _hashed(file: Path) -> tuple[str, str]:
    """Hash and size in the format of RECORD."""
    return f"sha256={urlsafe(bytes.fromhex(sha256_file(file)))}", str(file.stat().st_size)
