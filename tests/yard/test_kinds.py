"""Kinds of revisions: what the table allows, what a further row makes possible, and that few ask which kind one is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

import stackyard
from stackyard.cli.look import show
from stackyard.core.errors import StackyardError
from stackyard.images.squashfs.launcher import compare
from stackyard.inputs.models import Site
from stackyard.upkeep.gc.remove import size_of
from stackyard.verify.table import TABLE
from stackyard.verify.verify import verify
from stackyard.yard import catalogue
from stackyard.yard.disk import DiskUse
from stackyard.yard.kinds import table
from stackyard.yard.kinds.adopted import FOR_ADOPTED, AdoptedPrefix
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.kinds.payload import KINDS, Form, Image
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write.atomic import json_text
from support import stackrecords

SOURCES = Path(stackyard.__file__).parent
CELLS = list(product(get_args(table.FormKind), get_args(table.OriginKind), (False, True)))


def test_six_of_eighteen_kinds_are_allowed_and_the_others_have_a_reason() -> None:
    assert len(CELLS) == 18 and set(KINDS) == set(get_args(table.FormKind))
    refused = {cell: table.refusal(*cell[:2], on_base=cell[2]) for cell in CELLS}
    assert {cell for cell, why in refused.items() if not why} == table.ALLOWED
    assert len(table.ALLOWED) == 6
    assert not [why for why in refused.values() if "not supported" in why], "each has a sentence of its own"


def test_what_has_no_row_is_refused_in_any_case() -> None:
    assert table.refusal("tape", "built", on_base=False) == "tape, built: not supported"  # type: ignore[arg-type]


@pytest.fixture
def built(tmp_path: Path) -> BuildRecord:
    return stackrecords.record(Yard(tmp_path / "yard"), "demo", "1.0", 1, disk=DiskUse(link_mode=FOR_ADOPTED))


@pytest.fixture
def adopted(built: BuildRecord) -> BuildRecord:
    """An adopted prefix whose files are in an image."""
    form = Form("squashfs", "image.sqsh", "6" * 64, 37_000_000, 2965, "mksquashfs", launcher="9" * 64)
    return replace(built, adopted=AdoptedPrefix("conda", "/sw/conda/envs/climate", "0" * 64), form=form)


def written(record: BuildRecord) -> Path:
    place = RevisionPaths.of(record.path).record
    place.write_text(json_text(record.to_json(), checked=True))
    return place


def test_a_record_of_a_kind_that_is_refused_is_not_read(built: BuildRecord, adopted: BuildRecord) -> None:
    facts = {"source": "x", "digest": "", "labels": {}, "mode": "host", "commands": {}, "shell": ""}
    wrapped = replace(adopted, form=replace(adopted.form, kind="container"), container=facts)
    with pytest.raises(StackyardError, match="a container holds a wrapped image"):
        read_record(written(wrapped))
    base = BaseRevision("/sw/yard", "ce/1.10-py39-1", "8" * 64, "/sw/yard/stacks/ce/1.10-py39-1/prefix")
    packed = replace(built, base=base, form=replace(adopted.form))
    with pytest.raises(StackyardError, match="files of its own, not an image"):
        read_record(written(packed))
    assert read_record(written(replace(packed, form=Form()))).base_id == base.id


def test_an_adopted_image_is_a_kind_like_others(adopted: BuildRecord) -> None:
    record = read_record(written(adopted))
    assert record == adopted

    payload, paths = record.payload, RevisionPaths.of(record.path)
    assert isinstance(payload, Image) and payload.root == Path(record.prefix)
    assert (payload.image, payload.launcher, payload.listed) == (paths.image, paths.launcher, (paths.root,))
    assert record.origin.kind == "adopted" and record.origin.owns_files and record.origin.again == "copy"
    assert record.origin.outside == () and record.origin.needs == record.path
    paths.launcher.touch()
    assert payload.command(["true"], {}) == ([str(paths.launcher), "true"], {})
    paths.launcher.unlink()

    assert show._disk(record) == "35.3 MiB in 1 file (squashfs), 2,965 entries inside"
    assert catalogue.size(record) == {"form": "squashfs", "bytes": 37_000_000, "files": 1, "entries": 2965}
    assert size_of(record) == (37_000_000, 1, 0, 0)
    assert record.origin.remark == "adopted from /sw/conda/envs/climate, conda"

    assert compare.has_launcher(record) and compare.is_recorded(record)
    ran = {kind for check in TABLE if check.applies(record) for kind in check.kinds}
    assert {"content", "import", "command", "library", "consistency"} <= ran
    found = verify(record, paths.root, Site())
    assert [(each.name, each.status) for each in found.checks] == [("launcher", "failed")], "nothing starts without"


# ------------------------------------------------------------------ who asks which kind a revision is

KIND = {
    "cli/publish/wrapadd.py": (1, "refuses what was not wrapped"),
    "deploy/described/cyclonedx.py": (1, "the life cycle in its bill: built, or only found"),
    "images/adopted.py": (1, "packs what was adopted"),
    "make/builder.py": (2, "a build is begun: what was adopted is only recorded; what has no packages runs beside"),
    "make/job.py": (1, "what a build shows read-only to programs"),
    "upkeep/transfer/move.py": (1, "a move copies what cannot be built again"),
    "upkeep/transfer/rebuilding.py": (1, "a move adopts again what was adopted"),
    "verify/checks/adopted.py": (2, "the check of what was adopted reads its list"),
}
"""How often a file asks for the form or the origin of a revision, and why."""
BASE = {
    "cli/extensions/common.py": (2, "what an extension is put on is shown"),
    "cli/extensions/rebase.py": (1, "refuses what has no base"),
    "cli/extensions/status.py": (2, "what is shown of an extension only"),
    "cli/look/show.py": (1, "shows it"),
    "deploy/deploy.py": (1, "a base may be removed during a build"),
    "deploy/licences.py": (1, "the licences of a base are accepted too"),
    "deploy/published/describe.py": (1, "shows it as JSON"),
    "expose/modulefiles/page.py": (1, "`pip install` is in the module's page"),
    "expose/published.py": (1, "the module does what that of the base does"),
    "lock/lockfile/fingerprint.py": (1, "a line of the fingerprint"),
    "lock/solving.py": (3, "a layer is solved on what its base has"),
    "make/builder.py": (1, "a layer takes the place of its base: its family, its conflicts"),
    "make/collisions/settle.py": (1, "files that a base has too"),
    "make/layer.py": (1, "what a build stands on: all other steps ask that"),
    "make/seal.py": (2, "what users can do instead of changing it"),
    "make/wheels/key.py": (1, "the interpreter in the key of a wheel"),
    "upkeep/extensions/base_status.py": (1, "whether its base is the present one"),
    "upkeep/extensions/extend_full.py": (1, "refuses an extension: a full revision is made of a complete one"),
    "upkeep/health/fsck/revision.py": (1, "a base that is missing, or another build"),
    "upkeep/transfer/carry.py": (1, "the lock beside the file of an extension"),
    "upkeep/transfer/moveplan.py": (1, "what is installed in an extension is not moved"),
    "upkeep/transfer/rebuilding.py": (1, "a base may have moved too"),
    "verify/checks/consistency.py": (1, "a layer is compared with its base"),
    "verify/checks/libraries.py": (1, "libraries that packages of a base load"),
    "verify/checks/revisionfiles.py": (1, "an extension has commands that its user installed"),
    "yard/revision/record.py": (4, "the record itself: its payload, `bases`, `lineage`, its places"),
}
"""How often a file asks whether a revision has a base, and why. Whether a file names one (`on`) is not counted."""


def _conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """All expressions of which only the truth is used, and all comparisons."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.BoolOp):
            yield from node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand
        elif isinstance(node, ast.Compare):
            yield node


def ends_in(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def asked(text: str, wanted: dict[str, tuple[str, ...]], *, whole: bool) -> int:
    """How often the attributes are asked for, each of one of these objects; `whole`: not for a part of them."""
    tree = ast.parse(text)
    parts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)} if whole else set()
    places = {
        (node.lineno, node.col_offset, node.attr)
        for test in _conditions(tree)
        for node in ast.walk(test)
        if isinstance(node, ast.Attribute) and ends_in(node.value) in wanted.get(node.attr, ())
        if id(node) not in parts
    }
    return len(places)


def counted(wanted: dict[str, tuple[str, ...]], *, whole: bool) -> Counter[str]:
    files = (file for file in SOURCES.rglob("*.py") if "kinds" not in file.relative_to(SOURCES).parts)
    found = {f"{file.relative_to(SOURCES)}": asked(file.read_text(), wanted, whole=whole) for file in files}
    return Counter({file: number for file, number in found.items() if number})


HOLDERS = ("record", "built", "moved", "other", "last", "variant")
OF_KIND = {
    **dict.fromkeys(("form", "adopted", "container"), HOLDERS),
    "kind": ("form", "payload"),
    "again": ("origin",),
}
OF_BASE = {"base": ("record", "variant", "loaded", "before")}


def test_questions_are_counted() -> None:
    text = 'a = 1 if record.form.kind == "x" else 2\nif kept.record.adopted: pass\nb = [r for r in s if r.payload.kind]'
    assert asked(text, OF_KIND, whole=False) == 4  # form, form.kind, adopted, payload.kind
    text = "if task.variant.base: pass\nx = f(record.base)\ny = record.base.hash == z\nassert not record.base"
    assert asked(text, OF_BASE, whole=True) == 2


def test_at_most_ten_places_ask_for_the_form_or_the_origin() -> None:
    found = counted(OF_KIND, whole=False)
    assert found == {file: number for file, (number, _) in KIND.items()}
    assert found.total() <= 10


def test_at_most_thirty_five_places_ask_for_a_base() -> None:
    found = counted(OF_BASE, whole=True)
    found["yard/revision/record.py"] += asked(
        (SOURCES / "yard/revision/record.py").read_text(), {"base": ("self", "here")}, whole=True
    )
    assert found == {file: number for file, (number, _) in BASE.items()}
    assert found.total() <= 35
