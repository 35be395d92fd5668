"""Notes on the parts of a script's launch, and of later lines, that a job file omits."""

from __future__ import annotations

import re
from itertools import pairwise, takewhile

from stackyard.core.quoting import cut
from stackyard.lint.fix.making import IntentDraft
from stackyard.lint.fix.prologue import OWN_VARIABLES, acts, text_of
from stackyard.lint.launches import Launch, unwrapped
from stackyard.lint.rules.base import Case
from stackyard.lint.rules.shape import horovodrun_hosts, launcher_in_launcher
from stackyard.lint.shell.commands import parse_shell
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import shown
from stackyard.lint.smallcommands import is_quiet
from stackyard.lint.systems import WORDS

_CARRIED = {
    "srun": "nodes ntasks ntasks-per-node cpus-per-task gpus-per-node gpus-per-task gres gpus export "
    "label kill-on-bad-exit wait unbuffered verbose",
    "jsrun": "nrs rs_per_host tasks_per_rs cpu_per_rs gpu_per_rs env",
    "mpirun": "np ppn depth x env",
    "flux": "nodes ntasks cores-per-task gpus-per-task gpus-per-node tasks-per-node env label-io unbuffered",
    "torchrun": "nnodes nproc_per_node node_rank rdzv_id rdzv_backend rdzv_endpoint master_addr master_port standalone "
    "module use_env",
    "accelerate": "num_processes num_machines machine_rank main_process_ip main_process_port rdzv_backend "
    "multi_gpu module same_network",
    "deepspeed": "num_nodes num_gpus master_addr master_port hostfile launcher node_rank module",
    "horovodrun": "np hosts hostfile verbose",
    "ibrun": "np ppn",
    "aprun": "np ppn depth",
}
"""Options of a launch line that a job file has in its own form, or that Stackyard needs no more."""
_GPU_KIND = re.compile(r"(?:gpu:)?(?!gpu:|none)[A-Za-z][\w.-]*:\d+$")
_PLACING = {
    "cpu-bind",
    "gpu-bind",
    "bind",
    "bind-to",
    "map-by",
    "rack-nodes",
    "racks",
    "aisles",
    "launch_distribution",
    "latency_priority",
    "distribution",
}


def left_out(case: Case, making: IntentDraft, started: ResolvedCommand | None, main: Launch | None, place: int) -> None:
    """Note the effects of the launch line, the tasks' shells and later commands that the job file lacks."""
    _head_line(making)
    _arguments(making)
    _burst_buffer(making)
    if started is None:
        _after(case, making, None, place)
        return
    _around(making, started)
    _defaults(making, started)
    for hit in (*horovodrun_hosts(case), *launcher_in_launcher(case)):
        making.note(hit.line, f"{hit.message}: the job file starts its ranks once, on all nodes")
    _evaluated(making, started, main)
    chain = case.chain(main) if main else []
    for launch in chain:
        _options(making, launch)
        _shell_options(making, launch)
        _inner(making, launch, chain)
    for outer, inner in pairwise(chain):
        _wrapped(making, outer.line, outer.program, inner.words)
    if main:
        _wrapped(making, main.line, started.argv, main.words)
    else:
        _wrapped(making, started.line, started.argv, tuple(unwrapped(list(started.argv))))
    _after(case, making, started, place)


def _head_line(making: IntentDraft) -> None:
    """Note a shell other than bash."""
    first = making.script.text.splitlines()[0] if making.script.text else ""
    name = re.sub(r"^#!\s*(?:/\S*/env\s+)?", "", first).strip() if first.startswith("#!") else ""
    words = name.split()
    if words and words[0].rsplit("/", 1)[-1] not in ("bash", "sh"):
        making.note(1, f"the script is for {name}; the job file's lines are for bash")
    elif len(words) > 1:
        making.note(1, f"the shell's options {' '.join(words[1:])}")


_ARGUMENT = re.compile(r"'[^']*'|\\.|(\$(?:[@*1-9]|\{[@*1-9][^}]*\}))")
"""An argument of the script, as ``$1``; what single quotes or a backslash keep from the shell comes first."""
_BURST_BUFFER = re.compile(r"#(?:DW|BB)\s+\S")


_DEFAULT = re.compile(r"\$\{(?!SLURM_|PBS_|LSB_|FLUX_)([A-Za-z_]\w*):?[-=]([^${}]+)\}")


def _defaults(making: IntentDraft, started: ResolvedCommand) -> None:
    """Note launch variables with defaults, which the environment of a submission may replace."""
    line = " ".join(word.raw for word in started.command.words)
    assignments = [assignment for other in making.script.commands for assignment in other.command.assignments]
    own = [assignment.raw for assignment in assignments if re.search(rf"\$\{{?{assignment.name}\b", line)]
    settled = {
        assignment.name for assignment in assignments if not re.search(rf"\$\{{{assignment.name}:?[-=]", assignment.raw)
    }
    for name, value in dict.fromkeys(_DEFAULT.findall(" ".join([line, *own]))):
        if name not in settled:
            making.note(started.line, f"{name} has its default, {value}, whatever is set where you submit")


def _arguments(making: IntentDraft) -> None:
    """Note arguments of the script in the prologue: `sbatch job.sh x` passes them on, `submit` has none."""
    for line in making.values.get("prologue") or ():
        if any(match[1] for match in _ARGUMENT.finditer(line)):
            making.notes.append(f"the script's arguments, which a job file has not, in {cut(line, 80)}")


def _burst_buffer(making: IntentDraft) -> None:
    """Note DataWarp's directives, which reserve storage and copy files before the job."""
    for number, line in enumerate(making.script.text.splitlines(), 1):
        if _BURST_BUFFER.match(line):
            making.note(number, f"a directive of the burst buffer: {cut(line.strip(), 80)}")


def _around(making: IntentDraft, started: ResolvedCommand) -> None:
    """Note redirections, pipes, background, and the blocks around the launch."""
    command = started.command
    for operator, word in command.redirects:
        means = "launch --stdin" if operator.startswith("<") else "runs logs has the output of each rank"
        making.note(started.line, f"the redirection {operator}{word.raw}: {means}")
    if command.fed:
        making.ask(started.line, "the pipe into the launch, its standard input: launch --stdin")
    if command.piped:
        making.note(started.line, "the pipe behind the launch: runs logs has the output of each rank")
    if command.here:
        making.ask(started.line, "the here-document that the launch reads")
    kinds = {"loop": "in a loop: the job file starts it once", "function": "in a function"}
    kinds |= {"branch": "in a condition: the job file starts it always"}
    for kind, text in kinds.items():
        if command.within(kind):
            making.note(started.line, f"the launch is {text}")
    if command.conditional:
        making.note(started.line, "the launch depends on the command before it")
    if command.background:
        making.note(started.line, "the launch is in the background; the job ends with it")


def _evaluated(making: IntentDraft, started: ResolvedCommand, main: Launch | None) -> None:
    """Note the other commands in an ``eval`` text with the launch."""
    evals = [
        command for command in making.script.commands if command.line == started.line and command.argv[:1] == ("eval",)
    ]
    for command in parse_shell(" ".join(evals[0].argv[1:]), started.line) if evals else ():
        text = " ".join(
            [
                *(f"{assignment.name}={assignment.raw}" for assignment in command.assignments),
                *(w.raw for w in command.words),
            ]
        )
        if command.words and main and command.words[0].raw == main.word:
            continue
        making.note(started.line, f"in eval: {text}")


def _options(making: IntentDraft, launch: Launch) -> None:
    carried = set(_CARRIED.get(launch.kind, "").split())
    if launch.kind == "container":
        return
    for option in launch.reading.options:
        text = f"{option.name or option.written} {shown(option.value)}".strip()
        cores = making.values.get("cores_per_rank")
        if launch.kind == "jsrun" and option.name == "bind" and option.value == f"packed:{cores}":
            continue
        if option.name == "jobid" and "SLURM_JOB" in option.value:
            continue  # its own job
        if option.name == "exclusive" and making.batch.get("exclusive"):
            continue
        if option.name in _PLACING:
            making.note(launch.line, f"the option {text} of {launch.word}: Stackyard places the ranks")
        elif launch.kind == "srun" and option.name in WORDS:
            continue  # of a container: `enclosed` has them
        elif option.name not in carried or not option.name:
            making.ask(launch.line, f"the option {text} of {launch.word}")
        elif option.name.startswith(("gres", "gpus")) and _GPU_KIND.match(option.value):
            making.note(launch.line, f"the kind of GPU in {option.value}: the site's node kind decides")
    if "torch.distributed.launch" in launch.words[:8] and not launch.given("use_env"):
        making.note(launch.line, "torch.distributed.launch passes --local_rank=N; the job file's ranks have LOCAL_RANK")
    own = launch.words[1 : launch.words.index("-m")] if "-m" in launch.words[:8] else ()
    if own and launch.word.rsplit("/", 1)[-1].startswith("python"):
        making.ask(launch.line, f"the options {' '.join(own)} of {launch.word}")
    name = launch.word.rsplit("/", 1)[0] if "/" in launch.word else ""
    if name and not launch.word.rsplit("/", 1)[-1].startswith("python"):
        making.note(launch.line, f"the path of {launch.word}")


def _shell_options(making: IntentDraft, launch: Launch) -> None:
    """Note options of the shell in each task, as in ``bash -lc``, if the job file starts its program without it."""
    shells = ("bash", "sh")
    if launch.program[:1] and launch.program[0].rsplit("/", 1)[-1] in shells:
        options = list(takewhile(lambda word: word.startswith("-"), launch.program[1:]))
        if set("".join(options)) - set("-c") and (making.values.get("program") or ("",))[0] not in shells:
            making.note(launch.line, f"in each task: the shell's options {' '.join(options)}")


def _inner(making: IntentDraft, launch: Launch, chain: list[Launch]) -> None:
    """Note the other commands in the shell of each task."""
    own = {id(member.command) for member in chain}
    quiet: list[str] = []
    program = making.values.get("program") or ()
    for command in making.script.inner:
        argv = command.resolved.argv
        if command.launch is not launch or program[:1] in (("bash",), ("sh",)):
            continue
        words = () if id(command.resolved) in own else tuple(shown(word) for word in argv)
        if words and words[-len(program) :] != tuple(program) and is_quiet(argv):
            quiet.append(str(command.line))
        elif words and words[-len(program) :] != tuple(program):
            making.note(command.line, f"in each task: {' '.join(argv)}")
        for assignment in command.resolved.command.assignments:
            own_one = OWN_VARIABLES.match(assignment.name)
            text = f"{assignment.name}, which Stackyard sets" if own_one else f"{assignment.name}={assignment.raw}"
            making.note(command.line, f"in each task: {text}")
        for operator, word in command.resolved.command.redirects:
            making.note(command.line, f"in each task: the redirection {operator}{word.raw}")
    making.note_lines(quiet, "in each task: only prints, looks or waits")


def _wrapped(making: IntentDraft, line: int, words: tuple[str, ...], inner: tuple[str, ...]) -> None:
    """Note words before a launch, such as ``timeout 3h srun``."""
    before = words[: len(words) - len(inner)] if words[-len(inner) :] == inner else ()
    before = tuple(word for word in before if word not in ("exec", "time", "command"))
    if before and before[0].rsplit("/", 1)[-1] not in ("bash", "sh"):
        making.note(line, f"{' '.join(before)} before {inner[0]}")


def _after(case: Case, making: IntentDraft, started: ResolvedCommand | None, place: int) -> None:
    """Note commands after the launch: a job file ends with its program."""
    launched = {id(launch.command) for launch in case.launches if not (launch.via or launch.wrapped)}
    ray = any(launch.kind == "ray" for launch in case.launches)
    quiet: list[str] = []
    for resolved in case.script.commands[place:]:
        if (
            resolved is started
            or id(resolved) in launched
            or (started and resolved.line == started.line and resolved.argv[:1] == ("eval",))  # its text is the launch
        ):
            continue
        if resolved.argv and is_quiet(resolved.argv) and not resolved.command.background and not acts(resolved):
            quiet.append(str(resolved.line))
        elif not (ray and resolved.argv[:2] == ("ray", "stop")):
            making.note(resolved.line, f"after the launch: {text_of(resolved)}")
    making.note_lines(quiet, "after the launch: only prints, looks or waits")
