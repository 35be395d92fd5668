"""Scenes on a login node of a Slurm cluster of four nodes."""

from __future__ import annotations

import os

import laptop
import yards
from scene import PAGES, Scene, plainly

from support import smallyard
from support.desk import Desk

SITE = """\
nodes:
  cpu: {cores: 8, memory_gib: 1.9}
scheduler: {kind: slurm, exclusive: false, rack_nodes: 2}
launch: {world_check: false}
"""


DEBUG = "stackyard launch -r 4 --debug-rank 0 train.py"
REPLACED = {"-N 2 ...": "-N 2 --ntasks-per-node=4 -J docs", DEBUG: f"script -qec '{DEBUG}' /dev/null"}  # in a terminal


def login(desk: Desk) -> None:
    """A site with its nodes, and a program."""
    laptop.program(desk)
    (desk.directory / "site.yaml").write_text(SITE)
    desk.replaced |= REPLACED
    desk.environ |= {"STACKYARD_SITE": str(desk.directory / "site.yaml")}


def submitting(desk: Desk) -> None:
    """A published stack, for 144 nodes, of which there are four here."""
    login(desk)
    desk.replaced["-N 144"] = "-N 2"
    smallyard.make(yards.own_yard(desk), "2.13", stack="pytorch")


def staged(desk: Desk) -> None:
    login(desk)
    (desk.directory / "scratch/imagenet").mkdir(parents=True)
    (desk.directory / "scratch/imagenet/data").write_bytes(os.urandom(3_000_000))


def roles(desk: Desk) -> None:
    """The job file of the page, a server, and workers that talk to it."""
    login(desk)
    text = (PAGES["several-programs.md"]).read_text()
    job = text[text.index("format: 1") : text.index("```", text.index("format: 1"))]
    desk.write(job_yaml=job.replace("nodes: 4", "nodes: 3\n    ranks_per_node: 2"), serve_py=SERVE, train_py=WORK)


SERVE = """\
import socket, sys
server = socket.create_server(("", int(sys.argv[2])))
while True:
    server.accept()[0].close()
"""
WORK = """\
import socket, sys
host, _, port = sys.argv[2].rpartition(":")
socket.create_connection((host, int(port)), timeout=60).close()
print("served")
"""


def solving(desk: Desk) -> None:
    """A stack whose julia is a script, and a solver without MPI's library."""
    login(desk)
    yard = smallyard.Yard(yards.own_yard(desk))
    smallyard.make(yard.root, "1.10", stack="julia")
    desk.program("julia", '#!/bin/sh\necho julia "$@"\n')


def scripted(desk: Desk) -> None:
    """A batch script of LSF."""
    login(desk)
    desk.write(job_lsf=LSF)


LSF = """\
#!/bin/bash
#BSUB -nnodes 2
#BSUB -W 10
#BSUB -P PROJ
#BSUB -o out.%J
jsrun -n 4 -r 2 -a 1 -c 4 python train.py
"""


def undescribed(desk: Desk) -> None:
    desk.environ["STACKYARD_SITE"] = str(desk.home / "site.yaml")  # root's own is the machine's
    desk.write(requirements_txt="numpy\n", pyproject_toml="[project]\nname = 'signals'\nversion = '0.3'\n")


LINTED = [f"stackyard lint {words}" for words in ("job.lsf", "--fix job.lsf")]
RANKS = ("stackyard launch -N 1 -r 18 --oversubscribe train.py",) * 2
SCENES = (
    Scene("launch.md", (1, 3), plainly(login), nodes=True),
    Scene("launch.md", (4, 5), plainly(submitting), nodes=True),
    Scene("launch.md", (6,), plainly(login), before={6: RANKS}, nodes=True),
    Scene("launch.md", (7,), plainly(scripted), nodes=True, ends=dict.fromkeys(LINTED, (0, 3))),
    Scene("first-job.md", (3,), plainly(login), nodes=True),
    Scene("stage.md", (1,), plainly(staged), before={1: ("salloc -N 4 --ntasks-per-node=4 -J docs",)}, nodes=True,
          places=("/scratch",)),
    Scene("several-programs.md", (1,), plainly(roles), nodes=True),
    Scene("tensorflow.md", (1,), plainly(login), nodes=True),
    Scene("other-languages.md", (3,), plainly(solving), nodes=True),
    Scene("init.md", (1, 2), plainly(undescribed), nodes=True, other=dict.fromkeys(("cpu", "a100"), "other nodes")),
)  # fmt: skip
