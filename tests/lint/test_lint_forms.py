"""Forms of a line that differ between launchers, centres and authors, and mean the same."""

from __future__ import annotations

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent

PBS = "#!/bin/bash\n#PBS -l select=2:ncpus=8:mpiprocs=4 -l walltime=1:00:00\ncd $PBS_O_WORKDIR\n"
SLURM = "#!/bin/bash\n#SBATCH -t 10 -N 2 {}\n"


def fixed(text: str) -> tuple[Intent, str]:
    """The intent of a script, and its notes as one text."""
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    return intent, "\n".join(notes)


def hits(text: str, rule: str) -> list[str]:
    """``severity: remedy`` of one rule's findings."""
    report = lint_text(text, name="job.sh")
    return [f"{each.severity}: {each.remedy}" for each in report.findings if each.rule == rule]


@pytest.mark.parametrize(
    "options",
    [
        "--env A=1 -env B=2", "-env A 1 -env B 2", "-genv A 1 -genv B=2", "-x A=1 -x B=2",
    ],
)  # fmt: skip
def test_variables_of_mpiexec(options: str) -> None:
    intent, notes = fixed(f"{PBS}mpiexec -n 8 {options} ./a -n 3\n")
    assert intent.variables == {"A": "1", "B": "2"} and intent.program == ("./a", "-n", "3")
    assert "option" not in notes


def test_a_parameter_of_open_mpi_is_two_words() -> None:
    intent, notes = fixed(f"{PBS}mpirun -np 8 --mca btl ^tcp ./a\n")
    assert intent.program == ("./a",) and "the option mca btl ^tcp of mpirun" in notes


def test_an_address_that_hydra_passes_on() -> None:
    assert hits(f"{PBS}mpiexec -n 8 -genv MASTER_ADDR localhost ./a\n", "address-localhost")


@pytest.mark.parametrize("name", ["mpiexec_mpt", "mpiexec.slurm", "mpirun.openmpi", "mpirun.lsf", "mpiexec.mpich"])
def test_other_names_of_mpirun(name: str) -> None:
    intent, notes = fixed(f"{PBS}{name} -n 8 ./a\n")
    assert (intent.program, intent.nodes, intent.ranks_per_node) == (("./a",), 2, 4) and "check" not in notes


@pytest.mark.parametrize(
    ("options", "said"), [("A=1", True), ("ALL,A=1", False), ("NONE", True), ("ALL", False), ("B", True)]
)
def test_an_environment_that_srun_does_not_pass_on_is_said_once(options: str, said: bool) -> None:
    _, notes = fixed(f"{SLURM.format('-n 2')}srun --export={options} ./a\n")
    assert notes.count("every rank gets the whole environment") == said


@pytest.mark.parametrize(
    ("head", "line", "found"),
    [
        ("--gres=gpu:4 --gpus-per-task=1 -n 16", "srun ./a", True),
        ("--gres=gpu:4 --gpus-per-task=1 -n 8", "srun ./a", False),
        ("--gpus-per-node=4 --ntasks-per-node=4", "srun --gpus-per-task=2 ./a", True),
        ("--gpus-per-node=4 --ntasks-per-node=4", "srun --gpus-per-task=1 ./a", False),
        ("--gpus-per-node=4 --ntasks-per-node=4", "srun --ntasks-per-node=1 --gpus-per-task=4 ./a", False),
        ("--gpus-per-node=4 --ntasks-per-node=4", "srun -n 1 --gpus-per-task=4 ./a", False),
    ],
)
def test_gpus_of_tasks_counted_in_any_way(head: str, line: str, found: bool) -> None:
    assert bool(hits(SLURM.format(head) + line + "\n", "gpus-per-task-mismatch")) == found


@pytest.mark.parametrize(
    ("options", "severity"),
    [
        ("", "warning"), ("--config_file c.yaml", "note"), ("--config_file=c.yaml --num_machines 2", "note"),
        ("--use_deepspeed --deepspeed_hostfile h", ""),
    ],
)  # fmt: skip
def test_accelerate_on_the_first_node(options: str, severity: str) -> None:
    """A configuration file that is not read may name the hosts, for DeepSpeed."""
    text = SLURM.format("--ntasks-per-node=1 -c 8") + f"accelerate launch {options} a.py\n"
    assert "".join(hits(text, "torchrun-first-node-only")).split(":")[0] == severity


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("module load singularity", True), ("ml tacc-apptainer/1.3.3 gcc", True), ("module load singularityce/4", True),
        ("module load singularity-AI-bindings", False), ("module load gcc container-gpu", False),
    ],
)  # fmt: skip
def test_a_module_of_the_program_alone_adds_no_option(module: str, found: bool) -> None:
    text = f"{SLURM.format('--gpus-per-node=4')}{module}\nsrun singularity exec a.sif python b.py\n"
    assert bool(hits(text, "container-without-gpu")) == found


@pytest.mark.parametrize(("head", "found"), [("-l ncpus=4", True), ("-l ncpus=4 -l wd", False), ("-l wd", False)])
def test_nci_starts_a_job_where_it_was_submitted(head: str, found: bool) -> None:
    text = f"#!/bin/bash\n#PBS -l walltime=1:00:00\n#PBS {head}\npython a.py\nmpirun -n 4 ./a\n"
    assert bool(hits(text, "pbs-working-folder")) == found


@pytest.mark.parametrize("text", ["--ntasks = 4", "--ntasks= 4", "--ntasks =4"])
def test_an_equals_sign_between_blanks(text: str) -> None:
    said = hits(f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH {text}\nsrun ./a\n", "stray-words")
    assert [each.partition(": ")[2] for each in said] == ["#SBATCH --ntasks=4"]


def test_nodes_of_expert_mode() -> None:
    head = '#BSUB -csm y -W 10 -n 169\n#BSUB -R "1*{select[LN]}+168*{select[CN&&(type==any)]span[ptile=42]}"\n'
    intent, notes = fixed(f"#!/bin/bash\n{head}jsrun -n 24 -r 6 -a 1 -c 7 -g 1 -b packed:7 ./a\n")
    assert intent.nodes == 4 and "nodes is" not in notes


@pytest.mark.parametrize(
    ("head", "line", "gpus"),
    [
        ("#SBATCH -t 10 -N 1 -n 4 --gpus=4", "srun -n 1 --gpus 1 --exact ./a", 1),
        ("#SBATCH -t 10 -N 2 -n 4 --gpus=4", "srun -N 2 -n 4 --gpus=a100:4 ./a", 1),
        ("#flux: -t 10m --nslots=4 --gpus-per-slot=1", "flux submit -n 1 -c 8 -g 1 ./a", 1),
    ],
)
def test_gpus_of_a_step(head: str, line: str, gpus: int) -> None:
    intent, notes = fixed(f"#!/bin/bash\n{head}\n{line}\n")
    assert intent.gpus_per_rank == gpus and "plain number" not in notes


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("horovodrun -np 8 python a.py", "horovodrun without hosts uses only the first of 2 nodes"),
        ("srun horovodrun -np 8 python a.py", "srun starts 8 copies of horovodrun"),
        ("srun mpirun -np 8 ./a", "srun starts 8 copies of mpirun"),
        ("horovodrun -np 8 -H a:4,b:4 python a.py", ""),
    ],
)
def test_launches_that_the_job_file_starts_otherwise(line: str, said: str) -> None:
    notes = fixed(SLURM.format("--ntasks-per-node=4 --gpus-per-node=4") + f"{line}\n")[1]
    end = ": the job file starts its ranks once, on all nodes"
    assert f"{said}{end}" in notes if said else end not in notes


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("gpus=a100:4", 1),
        ("gres=gpu:a100:4", 1),
        ("gres=gpu:4", 0),
        ("gpus-per-task=1", 0),
        ("gpus-per-task=h100:1", 1),
    ],
)
def test_the_kind_of_gpu_of_a_step_is_said(option: str, said: int) -> None:
    _, notes = fixed(SLURM.format("-n 4") + f"srun --{option} ./a\n")
    assert notes.count("the kind of GPU in") == said


@pytest.mark.parametrize(("options", "said"), [("-lc", "-lc"), ("-e -c", "-e -c"), ("-c", "")])
def test_options_of_the_shell_of_each_task(options: str, said: str) -> None:
    _, notes = fixed(SLURM.format("-n 2") + f"srun bash {options} 'python a.py'\n")
    assert ("in each task: the shell's options" in notes) == bool(said) and said in notes


@pytest.mark.parametrize(
    ("head", "remedy"),
    [
        ("#SBATCH --time=6h", "#SBATCH --time=6:00:00"), ("#SBATCH -t 1d12h", "#SBATCH --time=36:00:00"),
        ("#SBATCH -t 90min", "#SBATCH --time=1:30:00"), ("#BSUB -W 6h", "#BSUB -W 6:00"),
        ("#PBS -l walltime=45m", "#PBS -l walltime=0:45:00"), ("#SBATCH -t 1:2:3:4", "#SBATCH --time=2:00:00"),
    ],
)  # fmt: skip
def test_the_wall_time_that_is_meant(head: str, remedy: str) -> None:
    assert hits(f"#!/bin/bash\n{head}\n./a\n", "time-format") == [f"refused: {remedy}"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("source activate $1", True), ('source activate "${2:-base}"', True), ("export ALL=$@", True),
        ("export A=$(awk '{print $1}' list)", False), (r"export A=\$1", False), ("export A=$HOME", False),
    ],
)  # fmt: skip
def test_arguments_of_the_script_in_the_prologue(line: str, said: bool) -> None:
    _, notes = fixed(SLURM.format("-n 2") + f"{line}\nsrun ./a $A $ALL\n")
    assert ("the script's arguments, which a job file has not, in" in notes) == said


def test_the_burst_buffer() -> None:
    _, notes = fixed(SLURM.format("-n 2\n#DW persistentdw name=data\n#DWARF is a word") + "srun ./a\n")
    assert "line 3: a directive of the burst buffer: #DW persistentdw name=data" in notes and "DWARF" not in notes
