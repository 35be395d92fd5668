"""Scenes on a machine without a scheduler: a program of some ranks."""

from __future__ import annotations

from scene import Scene, plainly

from support.desk import Desk

TRAIN = """\
import os, sys
rank = int(os.environ["RANK"])
assert sys.argv[1:] in ([], ["--epochs", "3"]), sys.argv
for epoch in range(3):
    print(f"epoch {epoch} loss {2.301 - 0.1 * epoch:.3f}", flush=True)
"""
FAILING = "import os\\nif os.environ['RANK'] == '1': raise SystemExit(3)\\n"
PYTHON = '#!/bin/sh\nexec /usr/bin/python3 "$@"\n'
DATED = {"2026-11-21-": '"$(date +%F)"-'}


def program(desk: Desk) -> None:
    """train.py, a package with it, and a `python`."""
    desk.program("python", PYTHON)
    desk.write(train_py=TRAIN, settings_txt="lr 0.1\n")
    (desk.here / "package").mkdir()
    (desk.here / "package/train.py").write_text(TRAIN)


FAIL = f'cp train.py kept.py; printf "{FAILING}" >> train.py'
SCENES = (
    Scene(
        "first-job.md", (1, 2, 4, 5), plainly(program), before={4: (FAIL,), 5: ("mv kept.py train.py",)},
        other={"  | the last lines": "what rank 1 printed"},
    ),
)  # fmt: skip
