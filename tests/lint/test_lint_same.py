"""`lint --fix` over all scripts at hand: the job file asks for the same and runs the same, or its notes say so.

Each job file is planned again. Nothing may be lost in silence: not a size, an option, a command or a word.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, Site
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.launch.plan.model import Plan
from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent
from stackyard.lint.launches import RANKS
from stackyard.lint.request import read_request
from stackyard.lint.rules.base import Case
from stackyard.lint.script import Script
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import shown

DIRECTORY = Path(__file__).parent.parent / "data" / "lint"
CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "batch"
SCRIPTS = [path for path in (*DIRECTORY.glob("*/*"), *CORPUS.glob("*")) if path.suffix not in (".py", ".json")]
OWN = """#!/bin/bash
#SBATCH -N 2 -n 8 -c 4 --comment="two words" --error=err-%j --mem-per-cpu=2G
#SBATCH --gres=gpu:a100:4,nvme:1 --time=1-0 --mail-type=ALL,TIME_LIMIT_80
nvidia-smi -l 5 > gpu.log &
test -d out || mkdir out
prepare() { rm -rf old; set --; }; prepare
srun -n 2 ./stage in
cat list | xargs rm
timeout 2h srun -n 8 -c 4 --cpu-bind=cores /opt/env/bin/python -u train.py --name "a b" > log 2>&1
rsync -a out/ /archive/ &
if true; then ./report.sh; fi
"""
LSF = """#!/bin/bash -l
#BSUB -n 8 -R "span[ptile=4] rusage[mem=8G]" -R "select[v100]" -W 2:00 -e err.%J -gpu "num=4:mode=shared"
#BSUB -alloc_flags "nvme smt4" -N -B
mpirun -x A=1 --map-by slot ./solver > out.txt
tar cf out.tar out
"""
PBS = """#!/bin/tcsh
#PBS -l select=4:ncpus=32:mpiprocs=4:ngpus=4:mem=100gb:system=polaris -l place=scatter -l filesystems=home:eagle
#PBS -l walltime=0:30:00 -j eo -W umask=22 -m abe
mpiexec -n 16 --ppn 4 --depth 8 --hostfile h ./solver
"""
FLUX = """#!/bin/bash
#FLUX: -N 2 -n 8 -c 4 -t 1h --error=e.txt --setattr=a=b
flux run -n 8 -c 4 -o cpu-affinity=per-task ./solver
flux run -n 1 ./after
"""
SITES = {
    kind: Site(
        nodes={"n": NodeKind(cores=512, gpu=Gpu(count=16))},
        scheduler=Scheduler(kind=kind, csm=True, exclusive=False, rack_nodes=18),
    )
    for kind in ("slurm", "lsf", "pbs", "flux")
}


def texts() -> dict[str, str]:
    own = {"own.sbatch": OWN, "own.lsf": LSF, "own.pbs": PBS, "own.flux": FLUX}
    return own | {path.name: path.read_text() for path in SCRIPTS}


def planned(intent: Intent, kind: str) -> Plan:
    intent = intent.model_copy(update={"container": "", "workdir": ""})  # the images are not here
    return make_plan(intent, SITES[kind], PlanContext(kind, environ={"PATH": "/usr/bin"}), head=True)


def missing(script: Script, intent: Intent, notes: list[str]) -> list[str]:
    """What neither the job nor a note has."""
    kept = " ".join([*intent.prologue, *intent.program, *intent.batch.scheduler_args, str(intent.model_dump())])
    said = {int(number) for note in notes for number in re.findall(r"\d+", note.partition(":")[0])}
    started = _started(script, intent)
    rest = [each for each in script.commands if each.argv and each.line not in said and each is not started]
    rest = [each for each in rest if not _kept(each, kept) and not _is_launch_of_ray(script, each.line)]
    found = [f"{each.line}: {each.argv}" for each in rest]
    for each in script.directives:
        if each.line in said or each.kind != script.scheduler or each.state == "disabled":
            continue
        found += [f"{each.line}: -{option.written} {option.value}" for option in each.options
                  if not _given(option.name, option.value, kept)]  # fmt: skip
    return found


def _started(script: Script, intent: Intent) -> object:
    """The command that has the program's words."""
    last = intent.program[-1:] or ("",)
    return next((each for each in reversed(script.commands) if last[0] in shown(" ".join(each.argv))), None)


def _kept(command: ResolvedCommand, kept: str) -> bool:
    words = [word.raw for word in command.command.words]
    directory = words[0] == "cd" and len(words) > 1 and re.search("PBS_O_WORKDIR|SLURM_SUBMIT_DIR|LS_SUBCWD", words[1])
    return bool(directory) or (
        words[0] in kept and all(part in kept for word in words for part in re.findall(r"\w+", word))
    )


def _is_launch_of_ray(script: Script, line: int) -> bool:
    return any(each.kind == "ray" for each in script.launches) and "ray" in script.text.splitlines()[line - 1]


_SIZES = (
    "nodes ntasks ntasks-per-node cpus-per-task gpus-per-node gpus-per-task gpus gres time exclusive mem mail-type "
    "requeue nnodes n W R gpu x N B csm l m j r nslots cores-per-slot gpus-per-slot time-limit"
)
SIZES = frozenset(_SIZES.split())


def _given(name: str, value: str, kept: str) -> bool:
    """A size is compared as a number by `test_the_same_sizes`; other options keep their value."""
    return name in SIZES or all(part in kept for part in re.findall(r"\w+", value))


@pytest.mark.parametrize("name", texts())
def test_nothing_is_lost_in_silence(name: str) -> None:
    script = lint_text(texts()[name], name=name).script
    intent, notes = to_intent(script)
    assert not missing(script, intent, notes), notes


@pytest.mark.parametrize("name", [name for name, text in texts().items() if lint_text(text).script.scheduler in SITES])
def test_the_same_sizes(name: str) -> None:
    script = lint_text(texts()[name], name=name).script
    intent, notes = to_intent(script)
    if not intent.program:
        assert "no launch line found: fill in program" in notes
        return
    plan = planned(intent, script.scheduler)
    assert plan.head is not None
    text = " ".join(notes)
    got, asked = plan.layout, script.request
    if asked.nodes and asked.nodes != got.nodes:
        assert "nodes" in text
    if asked.time_min and asked.time_min != intent.batch.time_min:
        assert "wall time" in text
    for mine, theirs in ((intent.batch.queue, asked.queue), (intent.batch.account, asked.account)):
        assert mine == theirs or theirs in text
    ranks, cores, gpus = wanted(script, intent)
    if ranks and got.ranks != ranks:
        assert re.search(r"ranks|agents|ntasks|np is", text), (ranks, got.ranks)
    if cores and intent.cores_per_rank != cores:
        assert re.search(r"ranks|cores", text), (cores, notes)
    if gpus is not None and (intent.gpus_per_rank or 0) * (intent.ranks_per_node or 1) != gpus:
        assert re.search(r"GPU|gpus", text), notes


def wanted(script: Script, intent: Intent) -> tuple[int | None, int | None, int | None]:
    """Ranks in all, cores of each and GPUs of a node, read from the launch line and the head alone."""
    request = read_request(script.scheduler, script.directives)
    outer = [each for each in script.launches if not each.via and not Case(script).is_helper(each)]
    last = outer[-1] if outer else None
    if last is None or any(each.kind not in RANKS for each in script.launches if each is last or last in each.via):
        return None, None, request.gpus_per_node
    counts = [last.count(name) for name in ("ntasks", "np") if last.given(name)]
    cores = [last.count(name) for name in ("cpus-per-task", "depth", "cores-per-task") if last.given(name)]
    ranks = counts[0] if counts else (request.tasks if last.kind == "srun" else None)
    return ranks, (cores[0] if cores else None), None if last.kind == "jsrun" else request.gpus_per_node


def test_words_stay_as_they_are() -> None:
    intent, notes = to_intent(lint_text(OWN).script)
    assert intent.program == ("/opt/env/bin/python", "-u", "train.py", "--name", "a b")
    assert intent.batch.scheduler_args == ("'--comment=two words'", "--error=err-%j", "--mem-per-cpu=2G")
    head = planned(intent, "slurm").head
    assert head and ("--comment=two words",) in head.directives
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank, intent.gpus_per_rank) == (2, 4, 4, 1)
    for part in (
        "in the background: nvidia-smi -l 5", "conditional: mkdir out", "in a function: rm -rf old", "./stage in",
        "timeout 2h before srun", "cpu-bind", "redirection > log", "redirection 2>&1", "rsync -a out/", "./report.sh",
        "--gres=nvme:1", "TIME_LIMIT_80", "xargs rm", "the kind of GPU",
    ):  # fmt: skip
        assert any(part.replace("> log", ">log") in note for note in notes), (part, notes)


def test_what_lsf_pbs_and_flux_leave_out_is_said() -> None:
    intent, notes = to_intent(lint_text(LSF).script)
    assert (intent.nodes, intent.ranks_per_node, intent.variables) == (2, 4, {"A": "1"})
    assert intent.batch.mail_events == ("end", "begin") and intent.batch.scheduler_args == ("-alloc_flags 'nvme smt4'",)
    for part in ("-e err.%J", "rusage[mem=8G]", "select[v100]", "mode=shared", "map-by", ">out.txt", "tar cf", "-l"):
        assert any(part in note for note in notes), (part, notes)
    intent, notes = to_intent(lint_text(PBS).script)
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank, intent.gpus_per_rank) == (4, 4, 8, 1)
    assert intent.batch.memory_gib == 100
    assert intent.batch.scheduler_args == ("-l filesystems=home:eagle", "-W umask=22")
    for part in ("/bin/tcsh", "system=polaris", "-j eo", "hostfile"):
        assert any(part in note for note in notes), (part, notes)
    intent, notes = to_intent(lint_text(FLUX).script)
    assert intent.program == ("./after",)
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank) == (1, 1, 1)
    assert any("./solver" in note for note in notes)
    assert intent.batch.scheduler_args == ("--error=e.txt", "--setattr=a=b")


@pytest.mark.parametrize(
    ("line", "program", "said"),
    [
        ("srun -n 2 sleep 30", ("sleep", "30"), ""),
        ("python -u -m torch.distributed.run --nproc_per_node=2 a.py", ("a.py",), "the options -u of python"),
        ("torchrun --nproc_per_node=gpu a.py", ("a.py",), "one for each of 2 GPUs"),
        ("/opt/x/python -m torch.distributed.run --nproc_per_node=2 a.py", ("/opt/x/python", "a.py"), ""),
        ('cmd="srun -n 2 ./a"\neval $cmd', ("./a",), ""),
        ("echo x > in.txt\nsrun -n 2 ./a", ("./a",), ""),
    ],
)
def test_single_lines(line: str, program: tuple[str, ...], said: str) -> None:
    intent, notes = to_intent(lint_text(f"#!/bin/bash\n#SBATCH -N 1 -t 1 --gres=gpu:2\n{line}\n").script)
    assert intent.program == program and (not said or any(said in note for note in notes)), notes
    assert not any("eval" in note for note in notes) and intent.prologue == (
        ("echo x > in.txt",) if "in.txt" in line else ()
    )


def test_numbers_and_variables_of_single_lines() -> None:
    head = "#!/bin/bash\n#SBATCH -N 1 -t 1 -c 8 --gpus-per-task=1\n"
    intent, _ = to_intent(lint_text(head + "srun ./a\n").script)
    assert (intent.ranks_per_node, intent.gpus_per_rank, intent.cores_per_rank) == (1, 1, 8)
    intent, _ = to_intent(lint_text("#PBS -l nodes=1:ppn=4:gpus=1\npython a.py\n").script)
    assert (intent.ranks_per_node, intent.cores_per_rank, intent.gpus_per_rank) == (1, 4, 1)
    intent, notes = to_intent(lint_text(head + "mpirun -x A=^lo,veth -x PATH -np 1 ./a\n").script)
    assert intent.variables == {"A": "^lo,veth"} and any("x PATH" in note for note in notes)
    intent, notes = to_intent(lint_text(head + ': "${IMAGE:=/x}"\nsrun ./a\n').script)
    assert intent.prologue == (': "${IMAGE:=/x}"',)


def test_a_loss_would_be_seen() -> None:
    script = lint_text(OWN).script
    intent, notes = to_intent(script)
    assert missing(script, intent, [note for note in notes if "rsync" not in note])
    without = intent.batch.model_copy(update={"scheduler_args": ()})
    assert missing(
        script, intent.model_copy(update={"batch": without}), [each for each in notes if "line 2" not in each]
    )
