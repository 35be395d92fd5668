"""Rules on background launches, waiting and sleeping."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import is_known, shown

_WAITS = re.compile(r"\b(?:wait|jswait|fg|tail\s+--pid|flux queue drain|flux jobs|kill -0|pgrep|jslist|sleep inf)")
_RAY = re.compile(
    r"\bray\s+(?:start|symmetric)|start[-_]head|start[-_]worker|ray[-_]?(?:head|cluster|worker)|redis[-_]password|ip_head"
)
_SERVER = re.compile(
    r"(?:start|run)[-_](?:head|worker|server)|\bray start|redis|mongod|postgres|tensorboard|jupyter|vllm|http\.server"
    r"|dask[- ](?:scheduler|worker|ssh|mpi)|monitor|nvidia-smi|dcgm|telemetry|logger|server|daemon"
    r"|\S*(?:controller|coordinator|broker)(?:[-_]\w+)?(?:\.py|\.sh)?(?= |$)|ipcluster|/i-pi\b"
)
_QUIET_WORDS = (
    "echo date exit printf set trap true : module export unset cd kill sacct seff sleep rm rmdir [ test local let "
    "break continue return shift read mkdir cp mv cat grep hostname squeue scontrol ls time pwd env"
)
_QUIET = frozenset(_QUIET_WORDS.split())
"""Commands that finish at once, so that background processes get no time to run."""


@rule(
    "missing-wait",
    why="The job ends with its script, and processes still in the background are killed",
    example="srun -n 4 ./a.out &\nsrun -n 4 ./b.out &",
    instead="srun -n 4 ./a.out &\nsrun -n 4 ./b.out &\nwait",
)
def missing_wait(case: Case) -> Iterator[Hit]:
    """Background launches with neither a wait nor another program in the foreground after them."""
    script = case.script
    if not script.scheduler:
        return
    started = [
        launch
        for launch in script.launches
        if launch.command.command.background and not launch.via and not launch.remote
    ]
    others = [
        command
        for command in script.commands
        if command.command.background and command.argv and not _is_brief(command.argv)
    ]
    if not started and not others:
        return
    begun = [(launch.line, launch.words, launch.word) for launch in started]
    line, words, name = max([*begun, *((other.line, other.argv, other.argv[0]) for other in others)])
    rest = [command for command in script.commands if command.line > line]
    tail = "\n".join(row for row in script.code.splitlines()[line - 1 :])
    if (
        _WAITS.search(tail)
        or any(_works(command) or _sleeps_until(case, command) for command in rest)
        or _is_server(case, line, shown(" ".join(words)))
    ):
        return
    yield Hit(line, f"{name} runs in the background, but the script ends without wait", "wait")


def _is_brief(argv: tuple[str, ...]) -> bool:
    """Whether a command ends at once, or only names a file or a function that is not known."""
    return argv[0].rsplit("/", 1)[-1] in _QUIET or not is_known(argv[0])


def _works(resolved: ResolvedCommand) -> bool:
    """Whether a command in the foreground runs long enough for those in the background."""
    name = resolved.argv[0].rsplit("/", 1)[-1] if resolved.argv else ""
    if name == "sleep":
        match = re.fullmatch(r"(\d+)(?:\.\d+)?([smhd]?)", resolved.argv[1] if len(resolved.argv) > 1 else "0")
        return not match or match[2] not in ("", "s") or int(match[1]) >= 60
    command = resolved.command
    return bool(name) and name not in _QUIET and not command.background and not command.within("function")


def _sleeps_until(case: Case, resolved: ResolvedCommand) -> bool:
    """Whether a command is the sleep of a loop that ends when started commands have finished."""
    return resolved.argv[:1] == ("sleep",) and resolved.command.within("loop") and _polls(case, resolved)


def _is_server(case: Case, line: int, text: str) -> bool:
    return bool(_SERVER.search(text)) or (bool(_RAY.search(text)) and line > 0)


@rule(
    "sleep-as-synchronisation",
    why="A fixed sleep is too short on a busy system and too long otherwise; poll the cluster until it is up",
    example="srun -N1 -n1 -w $head ray start --head --block &\nsleep 30",
    instead="until ray status --address $ip:6379 >/dev/null 2>&1; do sleep 1; done",
)
def sleep_as_synchronisation(case: Case) -> Iterator[Hit]:
    """A sleep after starting a Ray head or worker in the background; a note for other servers."""
    before: tuple[str, int] | None = None
    for resolved in case.script.commands:
        argv = resolved.argv
        text = shown(" ".join(argv))
        if resolved.command.background and argv:
            before = ("ray" if _is_ray(case, text) else "server" if _SERVER.search(text) else "", resolved.line)
        elif argv[:1] == ("ray",) and argv[1:2] == ("start",):
            before = ("ray", resolved.line)
        elif argv[:1] == ("sleep",) and before and before[0] and argv[1:2]:
            if resolved.command.within("loop") and _polls(case, resolved):
                continue
            remedy = "until ray status --address $ip_head >/dev/null 2>&1; do sleep 1; done"
            yield Hit(resolved.line, f"sleep {shown(argv[1])} waits for what line {before[1]} started",
                      remedy if before[0] == "ray" else "poll the server until it answers",
                      None if before[0] == "ray" else "note")  # fmt: skip
            before = None
        elif argv and argv[0] not in ("echo", "printf", "export", "date") and not resolved.command.background:
            before = None if argv[0] not in ("true", ":") else before


def _is_ray(case: Case, text: str) -> bool:
    """Whether a command starts part of a Ray cluster, by its words or by a script's name if the script mentions Ray."""
    if re.search(r"\bray\s+start|\bray_?start|start_?ray", text):
        return True
    return bool(re.search(r"\b\S*(?:start|run)?[-_]?(?:head|worker)\S*\.sh\b", text)) and bool(
        re.search(r"\bray\b|redis_password|ip_head", case.script.text, re.I)
    )


def _polls(case: Case, resolved: ResolvedCommand) -> bool:
    """Whether the loop around a sleep polls something: ``while ! nc ..; do sleep 1; done``."""
    loop = [number for number, kind in resolved.command.blocks if kind == "loop"]
    rows = case.script.text.splitlines()[max(0, resolved.line - 4) : resolved.line]
    return bool(loop) and bool(re.search(r"\b(?:while|until)\b|\bbreak\b", "\n".join(rows)))


@rule(
    "output-thrown-away",
    "note",
    why="If the output goes to /dev/null, the cause of a failure is lost",
    example="srun python train.py > /dev/null 2>&1",
    instead="srun --output=rank-%t.log python train.py",
)
def output_thrown_away(case: Case) -> Iterator[Hit]:
    """All output of a launch or of the job goes to /dev/null."""
    for launch in case.steps:
        targets = {op: "".join(part.text for part in word.parts) for op, word in launch.command.command.redirects}
        both = "&>" in targets or {"2>", ">"} <= targets.keys() or (">" in targets and targets.get("2>&") == "1")
        if (
            both
            and targets.get("&>", targets.get(">")) == "/dev/null"
            and targets.get("2>", "/dev/null") in ("/dev/null",)
        ):
            yield Hit(
                launch.line, f"all output of {launch.word} goes to /dev/null", f"{launch.word} ... > run.log 2>&1"
            )
    request = case.script.request
    for name in ("output", "o"):
        if request.values.get(name) == "/dev/null":
            yield Hit(request.lines[name], "the job's output goes to /dev/null", severity="note")
