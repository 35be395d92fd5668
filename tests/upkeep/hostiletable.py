"""The places of docs/reference/places.md, paths at which they are made hostile, and verbs that run over them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.below import Below
from stackyard.launch.records.paths import RunPaths
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import BasePaths, GenerationPaths, RevisionPaths

TABLE = Path(__file__).parents[2] / "docs/reference/places.md"
ODD = "x\x1b[2J\x9b\n\u202egnp"
"""A name that clears a screen, begins a line, and turns the text that follows."""
VICTIM = "stacks/tool/1.0-py3-1"
RUN = "2026-11-26-001"


@dataclass(frozen=True)
class Place:
    """A row of the table: who may write there, and which verbs read it."""

    name: str
    writers: tuple[str, ...]
    verbs: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether any account may write there."""
        return "any account" in self.writers

    @property
    def is_replaced(self) -> bool:
        """Whether its writers can exchange all of it, and what is published is still there."""
        return self.name.endswith("/") and not self.is_open and self.name not in ("stacks/", "generations/")


def table() -> list[Place]:
    """The rows of docs/reference/places.md."""
    rows = [line.strip("| \n").split(" | ") for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    return [
        Place(_quoted(cells[0])[0], tuple(word.strip() for word in cells[1].split(",")), tuple(_quoted(cells[2])))
        for cells in rows
    ]


def _quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


# --------------------------------------------------------------------------- where something hostile is put


def properties(of: type, root: str = "/a/b/c/d") -> list[str]:
    """The paths that the code has names for, relative to their directory."""
    made = of(Path(root))
    found = [getattr(made, name) for name, value in vars(of).items() if isinstance(value, (property, Below))]
    return [str(path.relative_to(root)) for path in found if isinstance(path, Path) and path.is_relative_to(root)]


def _caches() -> list[str]:
    entries = ("ab/" + "ab" * 32, "evil-1.0-0", "evil-1.0-0.lock", ODD)
    return [f"{each}/{entry}" for each in properties(Yard) if each.startswith("cache/") for entry in entries]


IN_YARD: dict[str, list[str]] = {
    "cache/": [*_caches(), "cache/accounts/77777", "cache/accounts/x/conda", "cache/licences/ab/abab"],
    "locks/": [
        "locks/" + "ab" * 32 + ".lock", "locks/files/" + "ab" * 16 + ".lock", f"locks/{ODD}.lock", "locks/files",
    ],
    "stacks/": [
        *(f"{VICTIM}/{each}" for each in properties(RevisionPaths) if each != "prefix"),
        *(f"stacks/evil/9-py3-1/{each}" for each in properties(RevisionPaths)),
        "stacks/tool/9.0-py3-1", "stacks/odd", f"stacks/{ODD}", f"stacks/tool/{ODD}",
    ],
    "generations/": [
        *(f"generations/1/{each}" for each in properties(GenerationPaths)),
        "generations/.draft-h-1-abc", f"generations/{ODD}", "generations/0",
    ],
    "shared/": ["shared/evil", "shared/evil2/later/tool.json", "shared/evil2/modules", f"shared/{ODD}"],
    "extensions/": ["extensions/evil", "extensions/mine/stack.yaml", "extensions/mine/stack.yaml.lock"],
    "bases/": [*(f"bases/evil/{each}" for each in properties(BasePaths)), "bases/.evil~x", "bases/odd", f"bases/{ODD}"],
    "leases/": ["leases/evil", "leases/publish", "leases/build/1", "leases/old/1/owner.json", f"leases/{ODD}"],
    "uses/": [
        "uses/tool~1.0-py3-1@{host}.1.{uid}.json", "uses/tool~2.0-py3-1@far.1.{uid}.json",
        f"uses/{ODD}.json", "uses/x", "uses/.tmp-x",
    ],
    "children/": [
        "children/" + "ab" * 16 + ".json", "children/{uid}.0123456789abcdef.json", f"children/{ODD}.json", "children/x",
    ],
    "registered/": [
        "registered/{uid}-" + "ab" * 16 + ".json", "registered/0-" + "ab" * 16 + ".json", f"registered/{ODD}",
    ],
    "bases-in-use.json": ["bases-in-use.json"],
    "usage/": [
        "usage/{host}.{uid}.2020-01.log", "usage/{host}.{uid}.2026-11.log", f"usage/{ODD}.{{uid}}.2020-02.log",
        "usage/x",
    ],
    "trash/": [
        "trash/20200101T000000-aaaaaaaaaaaa", "trash/20200101T000000-bbbbbbbbbbbb/what.json",
        "trash/20200101T000000-cccccccccccc/content", "trash/20200101T000000-dddddddddddd/doomed",
        f"trash/{ODD}", "trash/x",
    ],
    "former/": [f"former/{each}" for each in ("stacks", "generations", "modules", "shared")],
    "reserve/": ["reserve/0", "reserve/1", "reserve/99", "reserve/x"],
    "licences.json": ["licences.json"],
    "signatures.json": ["signatures.json"],
    "move.json": ["move.json"],
    "modules": ["modules.tmp", ".modules-x"],
    "envs": ["envs"],
    "names": ["names"],
}  # fmt: skip
"""Paths below the yard; `{uid}` is the hostile account's. The link ``modules`` itself is what users see: it stays."""
BESIDE: dict[str, list[str]] = {
    "users' yards": ["own/stacks/a/1/record.json", "own/stacks/b", "own/trash/t/content", "own/uses/x.json",
                     "own/stacks/a/2/lock/stack.lock", f"own/stacks/{ODD}", "own/cache", "own/generations"],
    "$TMPDIR": ["tmp/stackyard.verify-{boot}-x", "tmp/.stackyard-new-x", "tmp/stackyard-uv-x", f"tmp/{ODD}"],
    "run directories": [
        *(f"runs/{RUN}/{name}" for name in properties(RunPaths)), "runs/2026-11-26-002/record.json",
        f"runs/{ODD}/record.json", "runs/2026-11-26-003",
    ],
    "batch scripts": ["job.sh", "job.yaml"],
    "studies": [
        "study/study.yaml", "study/study.json", "study/table.csv", "study/jobs/n0001-a01.json",
        "study/points/n0001-job-a01-r01.json", "study/jobs", "study/points", "study/lease", f"study/jobs/{ODD}.json",
    ],
    "searches": [
        "search/space.yaml", "search/search.json", "search/journal.jsonl", "search/lease", "search/allocations",
        "search/trials", f"search/allocations/{ODD}",
    ],
    "catalogues": [
        "catalogue/.stackyard-catalogue/made.json", "catalogue/.stackyard-catalogue/read.json", "catalogue/index.html",
        "catalogue/@catalogue", "catalogue/tool", f"catalogue/{ODD}",
    ],
    "kernels": ["jupyter/kernels/evil", "jupyter/kernels/odd/kernel.json", f"jupyter/kernels/{ODD}/kernel.json"],
    "artefacts": ["layout/index.json", "layout/oci-layout", "layout/blobs/sha256/" + "ab" * 32, "layout/blobs"],
    "adopted prefixes": ["prefix/bin/python", "prefix/conda-meta/evil-1-0.json", "prefix/conda-meta/history",
                         "prefix/lib/python3.11/site-packages/evil.py", "prefix/pyvenv.cfg", f"prefix/{ODD}"],
    "images": ["app.sif"],
    "stack files": ["stack.yaml", "stack.yaml.lock", "bindings.yaml", "mirror", "mirror/index.json",
                    "written.yaml"],
}  # fmt: skip
SPOTS = {**IN_YARD, **BESIDE}

VERBS: dict[str, list[str]] = {
    "deploy": ["deploy {beside}/stack.yaml --dry-run"],
    "lock": ["lock {beside}/stack.yaml --check"],
    "mirror": ["mirror {beside}/stack.yaml --to {beside}/mirror --dry-run"],
    "adopt": ["adopt {beside}/prefix --name taken --dry-run", "adopt {beside}/prefix --name taken"],
    "wrap": ["wrap {beside}/app.sif --commands x --output {new} --dry-run"],
    "verify": ["verify tool/1.0", "verify tool/1.0 --repair"],
    "push": ["push tool/3.0 oci:{beside}/layout:real"],
    "pull": ["pull oci:{beside}/layout:real --dry-run", "pull oci:{beside}/layout:real"],
    "list": ["list --all --size --usage"],
    "show": ["show tool/1.0"],
    "diff": ["diff tool/1.0 tool/2.0"],
    "sbom": ["sbom tool/1.0", "sbom tool/1.0 --format spdx"],
    "why": ["why tool/1.0 idna"],
    "run": ["run tool/1.0 -- python -c pass"],
    "shell": ["shell tool/1.0 -- -c true"],
    "kernel": ["kernel list", "kernel install tool/1.0 --name evil", "kernel remove evil"],
    "licences": ["licences list", "licences report tool/1.0"],
    "share": ["share tool/1.0 --with group:{group}", "share tool/1.0 --with group:{group} --undo"],
    "tune": ["tune --verify {beside}/search", "tune --continue {beside}/search --dry-run"],
    "catalogue": ["catalogue -o {new}", "catalogue -o {beside}/catalogue"],
    "extend": ["extend --base tool/2.0 --name mine --pip iniconfig --dry-run"],
    "status": ["status"],
    "update": ["update mine --dry-run"],
    "rebase": ["rebase mine --dry-run"],
    "export": ["export tool/1.0"],
    "launch": ["launch --job {beside}/job.yaml --dry-run", "launch --again {run} --dry-run"],
    "submit": ["submit --job {beside}/job.yaml --dry-run"],
    "explain": ["explain --job {beside}/job.yaml"],
    "lint": ["lint {beside}/job.sh", "lint --fix {beside}/job.sh"],
    "bench": ["bench {beside}/study/study.yaml --dry-run", "bench --continue {beside}/study --dry-run"],
    "report": [
        "report {beside}/study",
        "report {beside}/search",
        "report {beside}/study -o {new}.html",
        "report {beside}/study {beside}/study",
    ],
    "doctor": ["doctor {run}", "doctor {beside}", "doctor"],
    "runs": ["runs", "runs show {run}", "runs logs {run}", "runs show 2026-11-26-002"],
    "profile": ["profile {run}"],
    "board": ["board {run}", "board {run} -- false {port}"],
    "image": ["image status", "image list", "image inspect {beside}/app.sif", "image check tool/1.0"],
    "recipe": ["recipe tool/3.0 --as containerfile --base docker://debian:trixie -o {new}"],
    "bindings": ["bindings show {beside}/bindings.yaml"],
    "history": ["history --all", "history 1"],
    "rollback": ["rollback --dry-run"],
    "default": ["default tool/2.0", "default tool --undo"],
    "withdraw": ["withdraw tool/1.0", "withdraw tool/1.0 --undo"],
    "sign": ["sign tool/1.0 --dry-run"],
    "retire": ["retire tool/1.0 --on 2020-01-01", "retire tool/1.0 --undo"],
    "remove": ["remove tool/2.0 --dry-run", "remove tool/1.0", "remove tool/1.0 --undo", "remove tool/2.0"],
    "fsck": ["fsck", "fsck --deep", "fsck --repair"],
    "usage": ["usage", "usage tool/1.0"],
    "gc": ["gc --dry-run", "gc", "gc --undo", "gc --now --keep 1"],
    "move": ["move {new} --dry-run", "move {new} --without tool/1.0-py3-1"],
    "schema": ["schema site"],
    "config": ["config", "config --json"],
    "help": ["help --all", "help"],
    "completion": ["completion bash"],
    "init": ["init -o {beside}/written.yaml --dry-run", "init -o {beside}/written.yaml"],
}
"""A command line of every verb, or several; `{new}` does not exist. None names what is `KEPT` to change it."""
