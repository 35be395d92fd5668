"""`lint --fix`: the job file that is equivalent to a batch script, and what could not be carried over."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from stackyard.host.quoting import cut
from stackyard.launch.request.intent import BatchOptions, Intent
from stackyard.lint.launches import AGENTS, RANKS, Launch, python_program
from stackyard.lint.prologue import OWN_VARIABLES, lines_before
from stackyard.lint.report import LintReport
from stackyard.lint.request import Request
from stackyard.lint.rules.base import Case, is_template
from stackyard.lint.rules.jsrun import sets_of
from stackyard.lint.rules.torch import ranks_per_agent
from stackyard.lint.script import Script
from stackyard.lint.words import is_known, shown
from stackyard.spec.validate import said

M = TypeVar("M", bound=BaseModel)

_SLURM_NAMES = {
    "qos": "qos",
    "constraint": "constraint",
    "reservation": "reservation",
    "dependency": "dependency",
    "array": "array",
    "mail-user": "mail",
    "output": "output",
}
_LSF_NAMES = {"w": "dependency", "u": "mail", "o": "output", "U": "reservation"}
_PBS_NAMES = {"M": "mail", "o": "output", "J": "array"}
_COVERED = {
    "slurm": {
        *_SLURM_NAMES,
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "cpus-per-task",
        "gpus-per-node",
        "gpus-per-task",
        "gpus",
        "gres",
        "time",
        "account",
        "partition",
        "job-name",
        "exclusive",
        "mem",
        "requeue",
        "error",
        "mail-type",
    },
    "lsf": {*_LSF_NAMES, "nnodes", "n", "R", "W", "P", "q", "J", "e", "csm", "x", "gpu", "N", "B"},
    "pbs": {*_PBS_NAMES, "l", "l.select", "l.walltime", "l.place", "l.nodes", "A", "P", "q", "N", "e", "j", "m"},
    "flux": {
        "nodes",
        "nslots",
        "cores-per-slot",
        "gpus-per-slot",
        "time-limit",
        "bank",
        "queue",
        "job-name",
        "exclusive",
    },
}
_BACKENDS = {"torchrun": "torchrun", "accelerate": "torchrun", "deepspeed": "deepspeed", "horovodrun": "horovod"}
_MAIL = {"BEGIN": "begin", "END": "end", "FAIL": "fail"}


@dataclass
class _Making:
    """An intent under construction, and a sentence for each thing left out."""

    script: Script
    values: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def to_intent(script: Script, report: LintReport | None = None) -> tuple[Intent, list[str]]:
    """The intent of a batch script, and a sentence for each thing that it could not carry over.

    The last launch of the script is converted; earlier ones (staging, ``hostname``) are listed in the notes. `report`
    adds the findings of lint, since errors are not carried over: the job file requests what was intended.
    """
    making = _Making(script)
    case = Case(script)
    _head(making)
    ray = [each for each in case.launches if each.kind == "ray"]
    main = None if ray else _main_launch(case, making)
    if main:
        _sizes(case, making, main)
        _program(case, making, main)
        _variables(making, main)
    else:
        driver = _plain_program(case, making, ray)
    end = ray[0].line if ray else (main.line if main else driver)
    before = lines_before(script, end)
    making.notes += before.notes
    making.values["prologue"] = tuple(before.lines) or None
    making.values["cwd"] = before.folder or None
    for finding in report.findings if report else ():
        if finding.severity != "note" and finding.where:
            making.notes.append(f"line {finding.where.line}: {finding.message} ({finding.rule})")
    values = {name: value for name, value in making.values.items() if value is not None}
    batch = _valid(BatchOptions, making.batch, making.notes)
    intent = _valid(Intent, {**values, "batch": batch}, making.notes)
    return intent, list(dict.fromkeys(making.notes))


def _valid(model: type[M], values: dict[str, Any], notes: list[str]) -> M:
    """The model of these values; those that no job file may have are left out with a note."""
    try:
        return model(**values)
    except ValidationError as error:
        problems = {str(each["loc"][0]): each for each in error.errors(include_url=False)}
    notes += [f"left out: {said(each, name)[0]}" for name, each in problems.items()]
    return model(**{name: value for name, value in values.items() if name not in problems})


def _main_launch(case: Case, making: _Making) -> Launch | None:
    outer = [each for each in case.launches if not each.via and not case.is_helper(each)]
    for other in outer[:-1]:
        making.notes.append(f"line {other.line}: a further launch, {cut(shown(' '.join(other.words)), 80)}")
    return outer[-1] if outer else None


def _head(making: _Making) -> None:
    request, batch, script = making.script.request, making.batch, making.script
    making.values["nodes"] = request.nodes
    if request.time_min and request.time_min != float("inf"):
        batch["time_min"] = request.time_min
    for name, value in (("account", request.account), ("queue", request.queue), ("name", request.name)):
        if value and not is_template(value):
            batch[name] = value
        elif value:
            making.notes.append(f"{name}: {value} is a placeholder: fill it in")
    _split_array(batch)
    table = {"slurm": _SLURM_NAMES, "lsf": _LSF_NAMES, "pbs": _PBS_NAMES}.get(script.scheduler, {})
    for option, name in table.items():
        value = request.values.get(option, "")
        if value and not is_template(value):
            batch[name] = value
    if request.exclusive:
        batch["exclusive"] = True
    if request.memory_mib and request.memory_mib >= 512:
        batch["memory_gib"] = round(request.memory_mib / 1024, 3)
    if "requeue" in request.values:
        batch["requeue"] = True
    _mail_events(making, request)
    _rest_of_head(making)


def _split_array(batch: dict[str, Any]) -> None:
    """LSF has the indices of an array in the job's name: ``name[1-10]%4``."""
    found = re.fullmatch(r"([^\[\]]*)\[([^\[\]]+)\](%\d+)?", batch.get("name", ""))
    if found:
        batch.update(name=found[1], array=found[2] + (found[3] or ""))


def _rest_of_head(making: _Making) -> None:
    """Options without a key in the job file: the scheduler's own are passed through, others are noted."""
    script, request = making.script, making.script.request
    for each in script.directives:
        for unread in each.options:
            if each.state == "read" and not unread.name and unread.written not in ("image", "container-image"):
                making.notes.append(f"line {each.line}: --{unread.written} {unread.value}".rstrip())
    for option, line in request.lines.items():
        if option not in _COVERED.get(script.scheduler, set()) and not option.startswith("l."):
            _pass_through(making, option, request.values.get(option, ""), line)


def _mail_events(making: _Making, request: Request) -> None:
    words = [
        word
        for each in making.script.directives
        for option in each.options
        if each.state == "read" and option.name == "mail-type"
        for word in option.value.upper().split(",")
    ]
    words = list(_MAIL) if "ALL" in words else words
    events = tuple(_MAIL[word] for word in dict.fromkeys(words) if word in _MAIL)
    if events:
        making.batch["mail_events"] = events
    if "R" in request.values and "csm" in request.values and "maxcus" in request.values["R"]:
        making.batch["pack"] = "racks"


def _pass_through(making: _Making, option: str, value: str, line: int) -> None:
    """Pass an option without a key in the job file to the scheduler unchanged."""
    if is_template(value) or "$" in value:
        making.notes.append(f"line {line}: {option} {value}")
        return
    hyphens = "--" if making.script.scheduler in ("slurm", "flux") and len(option) > 1 else "-"
    words = [f"{hyphens}{option}={value}" if hyphens == "--" and value else f"{hyphens}{option}"]
    words += [value] if hyphens == "-" and value else []
    making.batch["scheduler_args"] = (*making.batch.get("scheduler_args", ()), *words)


def _sizes(case: Case, making: _Making, launch: Launch) -> None:
    request, values = making.script.request, making.values
    inner = next(
        (each for each in case.launches if each.kind in AGENTS and (launch is each or launch in each.via)), None
    )
    step = case.step(launch)
    sets = sets_of(launch)
    if step.nodes and launch.given("nodes"):
        values["nodes"] = step.nodes
    per_node = step.per_node
    if per_node is None and step.tasks and values.get("nodes") and step.tasks % values["nodes"] == 0:
        per_node = step.tasks // values["nodes"]
    cores, gpus = step.cpus if launch.kind == "srun" else request.cpus_per_task, request.node_gpus
    if sets:
        cores = sets.cores // sets.ranks if sets.cores else None
        gpus = sets.gpus * sets.host if sets.gpus and sets.host else None
        values["nodes"] = _jsrun_nodes(sets.count, sets.host, values.get("nodes"))
    if launch.kind == "horovodrun" and (ranks := launch.count("np")) and values.get("nodes"):
        per_node = ranks // values["nodes"] if ranks % values["nodes"] == 0 else None
    if inner:
        ranks = ranks_per_agent(inner)
        cores = cores // ranks if cores and ranks else None
        per_node = ranks
    values["ranks_per_node"], values["cores_per_rank"] = per_node, cores or None
    if gpus and per_node and gpus % per_node == 0:
        values["gpus_per_rank"] = gpus // per_node
    for option in launch.reading.options:
        if option.name in ("nodes", "ntasks", "np", "nrs", "rs_per_host", "tasks_per_rs") and not is_known(
            option.value
        ):
            making.notes.append(
                f"line {launch.line}: {option.name} is {shown(option.value)}: check nodes and ranks_per_node"
            )
    threads = launch.environment.get("OMP_NUM_THREADS")
    if threads and threads.text.isdecimal() and int(threads.text):
        values["threads_per_rank"] = int(threads.text)


def _jsrun_nodes(count: int | None, host: int | None, nodes: int | None) -> int | None:
    return -(-count // host) if count and host else nodes


def _program(case: Case, making: _Making, launch: Launch) -> None:
    chain = [launch, *(each for each in case.launches if launch in each.via)]
    last = chain[-1]
    backend = next((_BACKENDS[each.kind] for each in chain if each.kind in _BACKENDS), None)
    if backend:
        making.values["backend"] = backend
    container = next((each for each in chain if each.kind == "container"), None)
    if container:
        _container(making, container)
    elif (image := launch.get("container-image")) and is_known(image):
        making.values["container"] = image
    words = python_program(last.program) or tuple(last.program)
    if len(words) > 1 and words[0] in ("bash", "sh") and len(last.program) > 2:
        words = _shell_program(case, making, last, words)
    if last.kind in AGENTS and last.given("module") and not words[0].startswith("-"):
        words = ("-m", *words)
    making.values["program"] = _known_words(making, last.line, words)
    if launch.kind in RANKS:
        _launcher_options(making, launch)


def _shell_program(case: Case, making: _Making, last: Launch, words: tuple[str, ...]) -> tuple[str, ...]:
    """The one Python command of a ``bash -c`` text, else the shell with its text."""
    programs = [
        (each, python_program(each.resolved.argv))
        for each in making.script.inner
        if each.launch is last and each.resolved.argv
    ]
    found = [(each, program) for each, program in programs if program]
    if len(found) != 1 or found[0][1] is None:
        return words
    for each, _ in programs:
        if each is not found[0][0]:
            making.notes.append(f"line {each.line}: {cut(shown(' '.join(each.resolved.argv)), 80)}")
    return found[0][1]


def _container(making: _Making, launch: Launch) -> None:
    words = launch.words[: len(launch.words) - len(launch.program)]
    image = words[-1] if words and "shifter" not in launch.word else launch.get("image") or _head_image(making)
    if image and is_known(image) and not image.startswith("-"):
        making.values["container"] = image
    else:
        making.notes.append(f"line {launch.line}: the container image {shown(image)}")
    for option in launch.reading.options:
        if option.name in ("bind", "volume", "env", "overlay"):
            making.notes.append(f"line {launch.line}: the container option --{option.name} {shown(option.value)}")


def _head_image(making: _Making) -> str:
    """The image that a directive names, as for Shifter's plugin."""
    options = (option for each in making.script.directives if each.state == "read" for option in each.options)
    return next((option.value for option in options if option.written == "image"), "")


def _launcher_options(making: _Making, launch: Launch) -> None:
    sized = {
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "cpus-per-task",
        "gpus-per-node",
        "gpus-per-task",
        "gres",
        "gpus",
        "np",
        "ppn",
        "nrs",
        "rs_per_host",
        "tasks_per_rs",
        "cpu_per_rs",
        "gpu_per_rs",
        "bind",
        "launch_distribution",
        "label",
        "latency_priority",
        "kill-on-bad-exit",
        "wait",
        "unbuffered",
        "jobid",
        "cpu-bind",
        "gpu-bind",
        "exclusive",
        "hostfile",
        "verbose",
        "cores-per-task",
    }
    for option in launch.reading.options:
        if option.name not in sized:
            text = f"{option.name or option.written} {shown(option.value)}".strip()
            making.notes.append(f"line {launch.line}: the option {text} of {launch.word}")


def _variables(making: _Making, launch: Launch) -> None:
    """Variables set on the launch line itself: ``A=1 srun``, --export, -E, -x, ``env A=1``."""
    pairs = [(each.name, each.raw) for each in launch.command.command.assignments]
    for option in launch.reading.options:
        pairs += [item.partition("=")[::2] for item in option.value.split(",") if option.name in ("export", "env", "x")]
    found: dict[str, str] = {}
    for name, value in pairs:
        if not value or OWN_VARIABLES.match(name):
            continue
        if is_known(value) and "$" not in value:
            found[name] = value.strip("\"'")
        else:
            making.notes.append(f"line {launch.line}: the variable {name}={cut(shown(value), 80)}")
    making.values["variables"] = found or None


def _plain_program(case: Case, making: _Making, ray: list[Launch]) -> int:
    """The driver of a Ray cluster, or the program of a script that starts no ranks; returns its line.

    Ray: the last Python command, bare or as a launch of its own; `backend: ray` starts the head and the workers.
    """
    script, request = making.script, making.script.request
    making.values["backend"], making.values["ranks_per_node"] = ("ray" if ray else "any"), 1
    if ray:
        making.notes.append("the lines that start, await and stop Ray: backend: ray does this")
        making.values["cores_per_rank"], making.values["gpus_per_rank"] = request.cpus_per_task, request.node_gpus
    for resolved in reversed(script.commands):
        starts = [each for each in case.launches if each.command is resolved]
        if any(each.kind == "ray" for each in starts):
            continue
        program = python_program(starts[-1].program if starts else resolved.argv)
        if starts and not program:
            inside = [python_program(each.resolved.argv) for each in script.inner if each.launch in starts]
            program = next((each for each in inside if each and each[:1] != ("-c",)), None)
        if program:
            making.values["program"] = _known_words(making, resolved.line, program)
            return resolved.line
    making.notes.append("no launch line found: fill in program")
    return len(script.text)


def _known_words(making: _Making, line: int, words: tuple[str, ...]) -> tuple[str, ...]:
    """The program's words as written; a note if they contain variables of the script."""
    words = ("python", *words) if words[:1] in (("-m",), ("-c",)) else words
    open_words = " ".join(shown(word) for word in words if not is_known(word))
    if open_words:
        making.notes.append(f"line {line}: variables of the script in {cut(' '.join(open_words.split()), 80)}")
    return tuple(shown(word) for word in words)
