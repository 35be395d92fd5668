"""Rules on the environment of the programs: what is loaded, and what of it they get."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.words import command_name, shown
from stackyard.lint.systems import of_program

_PYTHON_MODULE = re.compile(r"^(?:\w+/)*(?:python|anaconda|miniconda|miniforge|mamba|conda)\d?(?:/|-|$)", re.I)


@rule(
    "module-hides-environment",
    why="A module puts its directories before those of the environment that is active: its python runs",
    example="conda activate train\nmodule load Python/3.10\npython train.py",
    instead="module load Python/3.10\nconda activate train\npython train.py",
)
def module_hides_environment(case: Case) -> Iterator[Hit]:
    """A module with a Python of its own, behind the activation of an environment."""
    active = 0
    for command in case.script.commands:
        words = [shown(word) for word in command.argv]
        if command.command.within("function") or command.command.within("branch") or not words:
            continue
        if any(word.rsplit("/", 1)[-1] in ("activate", "deactivate") for word in words[:2]):
            active = 0 if "deactivate" in words else command.line
        elif active and words[0] in ("module", "ml"):
            hides = next((name for name in words[1:] if _PYTHON_MODULE.match(name)), "")
            if hides and words[1] not in ("unload", "rm", "del"):
                yield Hit(command.line, f"{hides} comes before the environment of line {active}", "load modules first")
                return


_OF_SSH = re.compile(r"ssh (?:-\S+ (?:[\w=]+ )?)*\S+ [\"']?(?:python|ray|mpirun|torchrun|julia|Rscript|\./)")


@rule(
    "ssh-without-environment",
    "note",
    why="ssh starts a new shell in the home directory: it has no modules, environments and variables of this one",
    example="#SBATCH --nodes=2\nmodule load python\nssh $node python worker.py",
    instead="#SBATCH --nodes=2\nmodule load python\nsrun -N 1 -n 1 -w $node python worker.py",
)
def ssh_without_environment(case: Case) -> Iterator[Hit]:
    """A program that ssh starts, after modules or an environment were loaded here."""
    loaded = re.search(r"(?m)^[ \t]*(?:module load|ml \w|conda activate|source|\.) ", case.script.code)
    for command in case.script.commands if loaded and case.script.is_batch else ():
        if _OF_SSH.match(shown(" ".join(command.argv))):
            yield Hit(
                command.line, "ssh starts this without the environment that the script has loaded", "srun -w NODE ..."
            )
            return


_KEPT = re.compile(
    r"(?:SINGULARITY|APPTAINER)ENV_(?:PMI|SLURM|OMPI|RANK|LOCAL)|--env(?:-file)?[= ]\S*(?:PMI|RANK|SLURM)"
)
"""Variables of a launcher that a script hands on by itself."""


@rule(
    "launcher-variables-removed",
    why="The ranks find each other by variables of the launcher: without them each is rank 0 of 1",
    example="srun --mpi=pmix apptainer exec --cleanenv image.sif ./solver",
    instead="srun --mpi=pmix apptainer exec image.sif ./solver",
)
def launcher_variables_removed(case: Case) -> Iterator[Hit]:
    """A container without the environment of its host, in each of several tasks; a note for a program of Python."""
    for launch in case.launches:
        outer = launch.ranks_of if launch.kind == "container" else None
        words = launch.words[: len(launch.words) - len(launch.program)]
        clean = next((word for word in words if word in ("-e", "--cleanenv", "-C", "--containall", "-eC", "-Ce")), "")
        other = of_program(command_name(launch.word))  # whose -e sets a variable
        if not outer or not clean or other or _KEPT.search(case.script.code) or case.inside_agent(outer):
            continue
        tasks = case.step(outer).tasks or (outer.count("np") if outer.kind == "mpirun" else None)
        inner = any(launch in member.via and member.kind in ("mpirun", "torchrun") for member in case.launches)
        if tasks != 1 and not inner:
            python = case.is_python(launch) and not re.search(r"mpi|distributed", " ".join(launch.words), re.I)
            text = f"{clean} removes the variables by which {outer.word} tells the ranks who they are"
            yield Hit(launch.line, text, f"leave out {clean}", "note" if python or tasks is None else None)


@rule(
    "shell-not-named",
    "note",
    why="Where a queue is posix_compliant, its own shell runs the job, often csh: the #! line is a comment",
    example="#$ -cwd\nfor k in 21 31; do ./work $k; done",
    instead="#$ -cwd\n#$ -S /bin/bash\nfor k in 21 31; do ./work $k; done",
)
def shell_not_named(case: Case) -> Iterator[Hit]:
    """A script of bash for Grid Engine without ``-S``."""
    named = re.search(r"(?m)^#\$.*\s-S\s|\A#!.*csh", case.script.text)
    if case.script.scheduler == "sge" and not named and _NOT_OF_CSH.search(case.script.code):
        line = next((each.line for each in case.script.directives if each.kind == "sge"), 1)
        yield Hit(line, "the shell of the queue may run this script, and not bash", "#$ -S /bin/bash")


_NOT_OF_CSH = re.compile(r"(?m)^\s*(?:(?:el)?if \[|for \w+ in|while |function |\w+ ?\(\)|\w+=\$?\()")
_OF_BASH = re.compile(r"^\s*(?:export\s+\w+=|[A-Za-z_]\w*=\S|if \[\[? .*;\s*then|for \w+ in .*;\s*do|.*\$\([^(])", re.M)
_OF_CSH = re.compile(r"^\s*(?:setenv\s+\w+\s|set \w+\s*=|foreach\s|endif$|source \S+\.csh\b)", re.M)


@rule(
    "other-shells-syntax",
    why="The shell of the first line does not know it: the command fails, and what it sets stays empty",
    example="#!/bin/csh\n#SBATCH --nodes=1\nexport OMP_NUM_THREADS=4",
    instead="#!/bin/csh\n#SBATCH --nodes=1\nsetenv OMP_NUM_THREADS 4",
)
def other_shells_syntax(case: Case) -> Iterator[Hit]:
    """Syntax of bash in a script of csh, or of csh in one of bash."""
    named = re.search(r"(?m)^#(?:\$|PBS|BSUB)\s.*-[SL]\s+(\S+)", case.script.text)
    shell = named[1] if named else case.script.text.partition("\n")[0]
    csh = bool(re.search(r"csh\b", shell))
    if not case.script.is_batch or not (csh or re.search(r"(?:ba|k|\b)sh\b", shell)):
        return
    for number, row in enumerate(case.script.code.splitlines(), 1):
        if (_OF_BASH if csh else _OF_CSH).match(row) and number not in case.script.inner_lines \
                and not re.search(r"setenv\s*\(\)|function|alias", case.script.code):  # fmt: skip
            text = f"{row.split()[0]} is of {'bash' if csh else 'csh'}, and {'csh' if csh else 'bash'} runs this script"
            yield Hit(number, text, "#!/bin/bash" if csh else "export NAME=VALUE")
            return


@rule(
    "unset-before-activate",
    "note",
    why="The scripts that activation runs read variables that are not set: with set -u they end the job",
    example="set -eu\nconda activate train",
    instead="set -e\nconda activate train\nset -u",
)
def unset_before_activate(case: Case) -> Iterator[Hit]:
    """``conda activate``, a module, or a profile under ``set -u``; a warning for those that surely fail."""
    strict = 0
    for command in case.script.commands:
        words = command.argv
        if words[:1] == ("set",):
            on = any(re.fullmatch(r"-\w*u\w*", word) for word in words[1:]) or "nounset" in words
            off = any(re.fullmatch(r"\+\w*u\w*", word) for word in words[1:]) or words[1:3] == ("+o", "nounset")
            strict = 0 if off else command.line if on else strict
        elif strict and command.argv:
            text = shown(" ".join(words[:3]))
            surely = _PROFILES.match(text)
            if surely or _ACTIVATIONS.match(text):
                text = (
                    f"activation under set -u (line {strict})"
                    if "activate" in text
                    else f"{text} under set -u (line {strict})"
                )
                yield Hit(command.line, text, "set +u before it, set -u behind it", "warning" if surely else None)
                return


_PROFILES = re.compile(
    r"(?:source|\.) (?:\S*/(?:etc/)?(?:profile|\.?bashrc|\.bash_profile|setvars\.sh|compilervars\.\w*sh|thisroot\.sh)$"
    r"|\S*OpenFOAM\S*/etc/bashrc|\S*/\.profile$)"
)
"""Files that read variables which are not set in a batch job: BASHRCSOURCED, PS1, SETVARS_CALL, WM_PROJECT."""
_ACTIVATIONS = re.compile(
    r"(?:conda|mamba|micromamba) (?:de)?activate|(?:source|\.) activate$|module load \S*(?:conda|oneapi)"
    r"|(?:source|\.) \S*/init/\w*sh$"
)


@rule(
    "path-replaced",
    why="Commands are looked up in PATH: without its old value the shell finds neither srun nor python nor ls",
    example="export PATH=/opt/tool/bin",
    instead="export PATH=/opt/tool/bin:$PATH",
)
def path_replaced(case: Case) -> Iterator[Hit]:
    """A new PATH without the old one and the system's directories; a note for LD_LIBRARY_PATH after modules."""
    loaded = False
    for command in case.script.commands:
        loaded = loaded or (command.argv[:1] in (("module",), ("ml",)) and command.argv[1:2] != ("purge",))
        for name, raw in command.sets:
            if name == "PATH" and "/" in raw and not re.search(r"PATH|\$\(|`|/bin:|/bin[\"']?$(?<=/usr/bin)", raw):
                yield Hit(command.line, "PATH loses its old value", f"export PATH={raw.strip(chr(34))}:$PATH")
            elif name == "LD_LIBRARY_PATH" and loaded and "/" in raw and not re.search(r"PATH|\$\(|`", raw):
                remedy = f"export LD_LIBRARY_PATH={raw.strip(chr(34))}:$LD_LIBRARY_PATH"
                yield Hit(command.line, "LD_LIBRARY_PATH loses what modules have put there", remedy, "note")


@rule(
    "preload-comma",
    why="ld.so splits LD_PRELOAD at spaces and colons; a comma makes one file name of two",
    example="export LD_PRELOAD=/a/liba.so,/b/libb.so",
    instead="export LD_PRELOAD=/a/liba.so:/b/libb.so",
)
def preload_comma(case: Case) -> Iterator[Hit]:
    """LD_PRELOAD with commas as separators."""
    pattern = re.compile(r"\bLD_PRELOAD=(\"[^\"]*\"|'[^']*'|\S+)")
    for line, row in enumerate(case.script.text.splitlines(), 1):
        match = pattern.search(row) if not row.lstrip().startswith("#") else None
        if match and "," in match[1] and "--export" not in row[: match.start()]:
            yield Hit(line, f"LD_PRELOAD={match[1]} is separated by commas", match.group().replace(",", ":"))


_OF_PROGRAMS = re.compile(
    r"OMP_(?:NUM_THREADS|PLACES|PROC_BIND|STACKSIZE|SCHEDULE|DYNAMIC)|(?:MKL|OPENBLAS|NUMEXPR|NUMBA|JULIA)_NUM_THREADS"
    r"|(?:KMP|GOMP|NCCL|RCCL|UCX|I_MPI|OMPI_MCA|MPICH|PSM2|XLA|MIOPEN|GLOO|NXF|SRUN|(?:SINGULARITY|APPTAINER)(?:ENV)?)_"
    r"(?!DIR|PATH|ROOT|HOME|IMAGE|CONTAINER|ARGS|OPT)[A-Z0-9_]+|(?:ROCR|HIP|CUDA)_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING"
    r"|PYTHONUNBUFFERED|TORCH_DISTRIBUTED_DEBUG|WANDB_MODE|TOKENIZERS_PARALLELISM"
)
"""Variables that programs read."""


@rule(
    "not-exported",
    why="A variable of the shell that is not exported does not reach the programs that read it",
    example="#SBATCH --cpus-per-task=8\nOMP_NUM_THREADS=8\nsrun -c 8 ./a.out",
    instead="#SBATCH --cpus-per-task=8\nexport OMP_NUM_THREADS=8\nsrun -c 8 ./a.out",
)
def not_exported(case: Case) -> Iterator[Hit]:
    """A variable of OpenMP, NCCL, MPI or a framework that is set, neither exported nor used."""
    code = case.script.code
    if not case.script.is_batch or re.search(
        r"(?m)^[ \t]*set\s+(?:-\w*a|-o allexport)|^#!.*[ -]\w*csh|declare -x", code
    ):
        return
    for command in case.script.commands:
        for each in command.command.assignments if not command.command.words else ():
            name = each.name
            told = rf"(?:\bexport\b|-x |env|--export\S*)[^\n]*\b{name}\b|\$\{{?{name}\b"
            if _OF_PROGRAMS.fullmatch(name) and not re.search(told, case.script.text):
                yield Hit(command.line, f"{name} is not exported: programs do not get it", f"export {name}={each.raw}")
