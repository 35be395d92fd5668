"""The head of a batch script as batch options: each option is carried over, passed through, or noted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from stackyard.core.quoting import cut
from stackyard.launch.request.options import Option, read_options
from stackyard.lint.dialect import Dialect
from stackyard.lint.directives import Directive, split_directive
from stackyard.lint.fix.making import IntentDraft
from stackyard.lint.request import alike_chunks, gpus_of, number
from stackyard.lint.rules.base import Case, is_template
from stackyard.lint.rules.heads.headoptions import directive_misspelt
from stackyard.lint.systems import WORDS
from stackyard.lint.tables import HEADS

_NAMES = {
    "slurm": {
        "account": "account", "partition": "queue", "job-name": "name", "qos": "qos", "constraint": "constraint",
        "reservation": "reservation", "dependency": "dependency", "array": "array", "mail-user": "mail",
        "output": "output",
    },
    "lsf": {
        "P": "account", "q": "queue", "J": "name", "w": "dependency", "u": "mail", "o": "output", "U": "reservation",
    },
    "pbs": {"A": "account", "q": "queue", "N": "name", "M": "mail", "o": "output", "J": "array"},
    "flux": {
        "bank": "account", "queue": "queue", "job-name": "name", "output": "output", "dependency": "dependency",
    },
}  # fmt: skip
_SIZES = {
    "slurm": {
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "ntasks-per-gpu",
        "cpus-per-task",
        "gpus-per-node",
        "gpus-per-task",
    },
    "lsf": {"nnodes", "n", "csm"},
    "pbs": set[str](),
    "flux": {"nodes", "nslots", "cores-per-slot", "gpus-per-slot"},
}  # fmt: skip
_CHUNK = ("ncpus", "mpiprocs", "ngpus", "ppn", "gpus")
_WHOLE_NODES = {"lsf": "x", "flux": "exclusive"}
"""The option whose only effect is the request's `exclusive`."""
_PATTERNS = {"slurm": r"%\d*[AaJjNnstuxb](?![A-Z])", "lsf": r"%[JI]", "flux": r"\{\{[\w.]+\}\}"}
"""What a scheduler fills in itself in the names of output files."""
_ONLY_NOTED = {
    "slurm": {"export", "export-file", "wait", "test-only", "parsable", "quiet", "verbose", "wrap", "help", "signal"},
    "lsf": {"e", "eo", "env", "I", "Ip", "Is", "IS", "ISp", "ISs", "IX", "K", "V", "h", "jsdl", "json", "yaml"},
    "pbs": {"e", "k", "S", "d", "w", "D", "I", "X", "G", "h", "z", "C", "f", "T", "F"},
    "flux": {"dry-run", "quiet", "list-plugins", "cwd", "wrap"},
}
"""Options of the submission itself, or whose effect Stackyard has in another way."""
_EVERY = ("BEGIN", "END", "FAIL")
_MAIL = {"BEGIN": "begin", "END": "end", "FAIL": "fail", "a": "fail", "b": "begin", "e": "end"}


def head(making: IntentDraft) -> None:
    """Carry over the directives that the scheduler reads."""
    script, request = making.script, making.script.request
    if request.time_min and request.time_min != float("inf"):
        making.batch["time_min"] = request.time_min
    if request.memory_mib:
        making.batch["memory_gib"] = round(request.memory_mib / 1024, 6)
    if request.exclusive:
        making.batch["exclusive"] = True
    read = [
        directive for directive in script.directives if directive.state == "read" and directive.kind == script.scheduler
    ]
    options = [(directive, option) for directive in read for option in directive.options]
    last = {option.name: at for at, (_, option) in enumerate(options)}
    for at, (directive, option) in enumerate(options):
        repeated = option.name and option.name != "mail-type" and last[option.name] != at
        if _overridden(script.scheduler, option) and repeated:
            continue  # the last one counts
        _carry(making, directive, option)
    for directive in script.directives:
        _left(making, directive)
    for hit in directive_misspelt(Case(script)):
        making.note(hit.line, f"not read by the scheduler: {script.rows[hit.line - 1].strip()}")
    for directive in read:
        if words := _stray(directive):
            making.note(directive.line, f"words that belong to no option: {' '.join(words)}")
    _split_array(making)


def _left(making: IntentDraft, directive: Directive) -> None:
    """A note for a directive that the scheduler does not read, or whose options are not known."""
    own, text = directive.kind == making.script.scheduler, directive.text
    if directive.state in ("late", "spaced", "component", "changed") and own:
        making.note(directive.line, f"not read by the scheduler, or of a further component: {text}")
    elif own and not making.script.table and directive.state == "read":
        making.note(directive.line, f"a directive of a scheduler that is not supported: {text}")
    elif not own and directive.state in ("read", "late"):
        making.note(directive.line, f"a directive of another scheduler: {text}")


def _overridden(scheduler: str, option: Option) -> bool:
    """Whether a later directive with the same option overrides this one."""
    adds_up = ("l", "W", "v") if scheduler == "pbs" else ()
    return scheduler in ("slurm", "flux", "pbs") and option.name not in adds_up


def _stray(directive: Directive) -> list[str]:
    """The words of a directive that are neither options of the scheduler nor values of options."""
    words, strays = tuple(split_directive(directive.text, directive.kind)), list[str]()
    while directive.kind in HEADS and words:
        reading = read_options(HEADS[directive.kind], words)
        if any(not option.name for option in reading.options):
            break  # the words after an unknown option may be its values
        words = reading.rest[1:]
        strays += reading.rest[:1]
    return strays


def _carry(making: IntentDraft, directive: Directive, option: Option) -> None:
    kind, name, value = making.script.scheduler, option.name, option.value
    known = _NAMES.get(kind, {}).get(name)
    if not name:
        if option.written not in WORDS:  # of a container: `enclosed` has them
            making.note(directive.line, (value and f"--{option.written} {value}") or directive.text)
    elif making.script.own:
        _of_plugin(making, directive, option, making.script.own)
    elif is_template(_plain(kind, name, value)) or ("$" in value and kind != "pbs"):
        making.ask(directive.line, f"{name}: {value} is a placeholder: fill it in")
    elif not value and name in HEADS[kind].valued.values() and name not in HEADS[kind].optional.values():
        making.note(directive.line, f"{name} has no value: fill it in")
    elif known:
        making.batch[known] = value
    elif name == _WHOLE_NODES.get(kind):
        return
    elif name in _SIZES.get(kind, ()):
        _size(making, directive, option)
    elif name in _ONLY_NOTED.get(kind, ()):
        making.ask(directive.line, f"the option {_written(kind, name, value)}")
    elif not _SPECIAL.get(kind, _slurm)(making, directive, option):
        _pass(making, kind, name, value)


def _plain(kind: str, name: str, value: str) -> str:
    """A value without the marks that have a meaning of their own: braces of LSF's -R, patterns of output files."""
    if name == "R":
        return re.sub("[{}]", "", value)
    is_file = name in ("output", "error", "input", "o", "oo", "e", "eo", "i")
    return re.sub(_PATTERNS[kind], "x", value) if is_file and kind in _PATTERNS else value


def _of_plugin(making: IntentDraft, directive: Directive, option: Option, own: Dialect) -> None:
    """Handle an option of a plug-in's scheduler by its meaning; sizes, time and memory are read elsewhere."""
    words, meanings = option.value.split(), own.meanings[option.name]
    written = own.text(option.name, " ".join(map(shlex.quote, words)))
    places = {"time": "time_min" in making.batch, "memory": bool(making.script.request.memory_mib)}
    if is_template(option.value) or own.lacks(option):
        making.ask(directive.line, f"{written} is a placeholder, or has no value: fill it in")
    elif meanings in ((), ("value",)):
        making.batch["scheduler_args"] = (*making.batch.get("scheduler_args", ()), written)
    elif len(meanings) == 1 and meanings[0] in _NAMES["slurm"].values():
        making.batch[meanings[0]] = option.value
    elif len(meanings) > 1 or not places.get(meanings[0], number(option.value) is not None):
        making.note(directive.line, f"{written}: check nodes, ranks_per_node and time_min")


def _size(making: IntentDraft, directive: Directive, option: Option) -> None:
    """Note sizes that are not plain numbers; the others are read elsewhere."""
    value = option.value.split(":")[-1] if option.name.startswith("gpus") else option.value
    if option.name == "csm":
        making.note(directive.line, "expert mode of LSF: the request is written anew, as the site says")
    elif number(value) is None:
        making.note(directive.line, f"{option.name} is {option.value}: check nodes and ranks_per_node")
    elif option.name.startswith("gpus") and ":" in option.value:
        making.note(directive.line, f"the kind of GPU in {option.value}: the site's node kind decides")


def _written(kind: str, name: str, value: str) -> str:
    """An option as one string that a shell would split into its words."""
    if kind in ("slurm", "flux") and len(name) > 1:
        return shlex.quote(f"--{name}={value}" if value else f"--{name}")
    return shlex.join([f"-{name}", value] if value else [f"-{name}"])


def _pass(making: IntentDraft, kind: str, name: str, value: str) -> None:
    making.batch["scheduler_args"] = (*making.batch.get("scheduler_args", ()), _written(kind, name, value))


def _slurm(making: IntentDraft, directive: Directive, option: Option) -> bool:
    """Handle the options of sbatch with special conversions; whether this was one."""
    name, value = option.name, option.value
    if name == "time":
        if "time_min" not in making.batch:
            making.note(directive.line, f"the wall time {value}: set time_min")
    elif name in ("gres", "gpus"):
        _gres(making, directive, name, value)
    elif name == "exclusive":
        if value:
            making.note(directive.line, f"--exclusive={value}: the job gets whole nodes")
    elif name == "mem":
        return bool(making.script.request.memory_mib)
    elif name == "requeue":
        making.batch["requeue"] = True
    elif name == "chdir" and value.startswith("/"):
        making.values["cwd"] = value
    elif name == "mail-type":
        _mail(making, directive, value.upper().split(","))
    else:
        return False
    return True


def _gres(making: IntentDraft, directive: Directive, name: str, value: str) -> None:
    for part in value.split(",") if name == "gres" else [f"gpu:{value}"]:
        if gpus_of(part) is None and name == "gres":
            making.note(directive.line, f"--gres={part}")
        elif name == "gres" and gpus_of(part) != making.script.request.gpus_per_node:
            making.note(directive.line, f"--gres={part}, which another option overrides")
        elif part.count(":") > 1 or (":" in part and not part.rsplit(":", 1)[1][:1].isdigit()):
            making.note(directive.line, f"the kind of GPU in {part}: the site's node kind decides")
    if name == "gpus" and making.script.request.gpus_per_node is None:
        making.note(directive.line, f"--gpus={value} is not a whole number for each node: check gpus_per_rank")


def _mail(making: IntentDraft, directive: Directive, words: list[str]) -> None:
    words = [*_EVERY, *(word for word in words if word != "ALL")] if "ALL" in words else words
    events = tuple(dict.fromkeys(_MAIL[word] for word in words if word in _MAIL))
    making.batch["mail_events"] = tuple(dict.fromkeys((*making.batch.get("mail_events", ()), *events)))
    others = [word for word in words if word not in _MAIL and word not in ("NONE", "n")]
    if others:
        making.note(directive.line, f"mail for {', '.join(others)}")


def _lsf(making: IntentDraft, directive: Directive, option: Option) -> bool:
    """Handle the options of bsub with special conversions; whether this was one."""
    name, value = option.name, option.value
    if name == "W":
        if "time_min" not in making.batch or "/" in value:
            making.note(directive.line, f"the wall time {value}: check time_min")
    elif name in ("N", "B"):
        _mail(making, directive, ["END" if name == "N" else "BEGIN"])
    elif name == "oo":
        making.batch["output"] = value
        making.note(directive.line, "-oo overwrites the output file; the job file appends to it")
    elif name == "cwd" and value.startswith("/"):
        making.values["cwd"] = value
    elif name == "gpu":
        if not re.fullmatch(r"num=\d+(?::mode=exclusive_process)?", value):
            making.note(directive.line, f"-gpu {value}: the site and gpus_per_rank decide")
    elif name == "R":
        _resources(making, directive, value)
    else:
        return False
    return True


def _resources(making: IntentDraft, directive: Directive, value: str) -> None:
    if "csm" in making.script.request.values:
        if "maxcus" in value:
            making.batch["pack"] = "racks"
        return
    plain = re.sub(r"span\[\s*(?:ptile\s*=\s*\d+|hosts\s*=\s*1)\s*\]", "", value).strip()
    if plain:
        making.note(directive.line, f"-R {value}: its nodes and ranks are carried over, the rest is not")


def _pbs(making: IntentDraft, directive: Directive, option: Option) -> bool:
    """Handle the options of qsub with special conversions; whether this was one."""
    name, value = option.name, option.value
    if name == "l":
        for item in re.split(r",(?=[\w.]+=)", value):
            _pbs_resource(making, directive, item)
    elif name == "m":
        _mail(making, directive, list(value))
    elif name == "j":
        if value != "oe":
            making.note(directive.line, f"-j {value}: both streams go to one file")
    elif name == "r":
        making.batch["requeue"] = value == "y"
    elif name == "P" and "A" not in making.script.request.values:
        making.batch["account"] = value
    elif name == "W" and value.startswith("depend="):
        making.batch["dependency"] = value.removeprefix("depend=")
    else:
        return False
    return True


_REPLACED = ("select", "nodes", "place", "walltime")
"""Resources of which PBS takes the last that is given."""


def _pbs_resource(making: IntentDraft, directive: Directive, item: str) -> None:
    name, _, value = item.partition("=")
    if name in _REPLACED and value != making.script.request.values.get(f"l.{name}"):
        making.note(directive.line, f"-l {item}, replaced on a later line")
    elif name == "walltime":
        if "time_min" not in making.batch:
            making.note(directive.line, f"the wall time {value}: set time_min")
    elif name in ("select", "nodes"):
        _chunk(making, directive, value)
    elif name == "place":
        if not set(re.split(r":", value)) <= {"scatter", "excl", "exclhost", "free", "vscatter"}:
            making.note(directive.line, f"-l {item}")
    elif name in ("ncpus", "ngpus", "mem") and not making.script.request.values.keys() & {"l.select", "l.nodes"}:
        making.note(directive.line, f"-l {item} without select is for the whole job: taken as that of one node")
    elif name == "mem" and not making.script.request.memory_mib:
        making.note(directive.line, f"-l {item} is for the whole job: set memory_gib for each node")
    elif name == "mem":
        return
    else:
        _pass(making, "pbs", "l", item)


def _chunk(making: IntentDraft, directive: Directive, value: str) -> None:
    request = making.script.request
    count, items = alike_chunks(value) or (None, [])
    if count is None or request.nodes is None:
        sizes = "nodes, ranks_per_node, cores_per_rank and gpus_per_rank"
        making.note(directive.line, f"the chunks {cut(value, 30)}: check {sizes}")
        return
    for item in items:
        name, _, size = item.partition("=")
        if name == "ompthreads" and number(size):
            making.values["threads_per_rank"] = number(size)
        elif name in _CHUNK and number(size) is None:
            making.note(
                directive.line, f"{item} of the chunk is not a plain number: check cores_per_rank and gpus_per_rank"
            )
        elif name not in _CHUNK and not (name == "mem" and request.memory_mib):
            making.note(directive.line, f"{item} of the chunk {value}")
    spread = (request.values.get("l.place") or "").partition(":")[0] in ("scatter", "excl", "vscatter")
    if (count or 1) > 1 and not spread and "l.select" in request.values:
        making.note(directive.line, f"{count} chunks are taken as {count} nodes")


def _flux(making: IntentDraft, directive: Directive, option: Option) -> bool:
    if option.name == "time-limit" and "time_min" not in making.batch:
        making.note(directive.line, f"the wall time {option.value}: set time_min")
    return option.name == "time-limit"


_SPECIAL: dict[str, Callable[[IntentDraft, Directive, Option], bool]] = {
    "slurm": _slurm, "lsf": _lsf, "pbs": _pbs, "flux": _flux,
}  # fmt: skip


def _split_array(making: IntentDraft) -> None:
    """LSF has the indices of an array in the job's name: ``name[1-10]%4``."""
    match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]+)\](%\d+)?", making.batch.get("name", ""))
    if match:
        making.batch.update(name=match[1], array=match[2] + (match[3] or ""))
