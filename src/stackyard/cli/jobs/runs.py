"""``stackyard runs``: list, follow, read, cancel and compare recorded runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import VerbGroup, verb
from stackyard.cli.jobs.intents import STREAMS
from stackyard.cli.output import echo, show_json, show_table, show_text
from stackyard.core.errors import InputError
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from stackyard.launch.api.runs import RunPaths, RunReport

COLORS = {"done": "green", "running": "cyan", "queued": "cyan", "planned": "white"}


@click.group(cls=VerbGroup, invoke_without_command=True, examples=(
    ("the runs that were started in any directory", "stackyard runs --all"),
    ("everything known about the last run of this directory", "stackyard runs show last"),
))  # fmt: skip
@click.option("--all", "everywhere", is_flag=True, help="The runs of all directories, not only of this one.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def command(ctx: click.Context, everywhere: bool, as_json: bool) -> None:
    """List the runs that were started in this directory.

    RUN is a name, the end of a name, a directory, or `last`; followed by `.3` it is task 3 of an array.
    """
    if ctx.invoked_subcommand is not None:
        return
    from stackyard.launch.api.runs import list_runs

    rows = list_runs(_directory(ctx.obj), everywhere=everywhere)
    if as_json:
        show_json(rows)
        return
    if not rows:
        echo("no runs here; `stackyard runs --all` lists those of other directories")
        return
    show_table([_shown(row, everywhere) for row in rows], ["run", "how", "state", "nodes", "time", "job", "program"])


def _shown(row: dict[str, Any], everywhere: bool) -> dict[str, str]:
    state = row["state"] if not row["code"] else f"{row['state']} ({row['code']})"
    marked = f", profiled ({', '.join(row['profiled'])})" if row["profiled"] else ""
    count = f", {row['tasks'].get('done', 0)} of {sum(row['tasks'].values())} done" if row["tasks"] else ""
    return {
        "run": row["folder"] if everywhere else row["run"],
        "how": row["how"],
        "state": click.style(state, fg=COLORS.get(row["state"], "red")) + count + marked,
        "nodes": str(row["nodes"]),
        "time": f"{row['seconds']:.1f} s" if row["seconds"] else "",
        "job": row["job"],
        "program": row["program"][:60],
    }


def _verb(short: str, *examples: tuple[str, str]) -> Callable[[Callable[..., Any]], click.Command]:
    """A verb below `runs`."""
    return verb(*examples, group=command, short_help=short)


@_verb(
    "follow a run",
    ("the last run of this directory", "stackyard runs attach"),
    ("a run by the end of its name", "stackyard runs attach 003"),
)
@click.argument("run", metavar="[RUN]", default="last")
@click.option("--stream", type=click.Choice(STREAMS), default="first", help="Ranks whose output is shown.")
@click.option("--json", "as_json", is_flag=True, help="Print how it ended as JSON.")
def attach(context: Context, run: str, stream: str, as_json: bool) -> None:
    """Follow a run to its end: its phases and the output of its first rank. Ctrl-C stops following only."""
    from stackyard.cli.jobs.following import follow_run

    follow_run(find_here(context, run), as_json=as_json, stream=stream)


@_verb(
    "print the log of a rank",
    ("the log of rank 5 of the last run", "stackyard runs logs -r 5"),
    ("the directory with the logs of a run", "stackyard runs logs 003 --where"),
)
@click.argument("run", metavar="[RUN]", default="last")
@click.option("-r", "--rank", metavar="N", type=click.IntRange(0), help="Rank. Default: the first.")
@click.option("--role", metavar="NAME", help="Of several programs this one; its ranks are counted from 0.")
@click.option("--launcher", is_flag=True, help="The log of the launcher itself.")
@click.option("--where", is_flag=True, help="Print the path of the logs only.")
def logs(context: Context, run: str, rank: int | None, role: str | None, launcher: bool, where: bool) -> None:
    """Print the log of a rank."""
    from stackyard.launch.api.runs import rank_log, rank_of

    paths = find_here(context, run)
    rank = rank_of(paths, role, rank or 0) if role else rank
    step = paths.main
    path = step.launcher_log if launcher else rank_log(paths, rank or 0)
    if where:
        echo(path if launcher or rank is not None else step.logs)
        return
    if not path.exists():
        raise _no_log(paths, step.logs, path)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            sys.stdout.buffer.write(block)


def _no_log(run: RunPaths, directory: Path, path: Path) -> InputError:
    """Why a log does not exist."""
    from stackyard.launch.api.runs import RunPaths, handle

    if tasks := sorted(run.root.glob("array/*/logs"), key=lambda log: int(log.parent.name)):
        task = handle(RunPaths(tasks[0].parent))
        return InputError(f"{run.name} is an array", hint=f"name a task: `stackyard runs logs {task}`")
    count = len(list(directory.glob("rank-*.log")))
    return InputError(f"{path} not found", hint=f"this run has the logs of {counted(count, 'rank')} in {directory}")


@_verb(
    "cancel a run",
    ("the last run of this directory", "stackyard runs cancel last"),
    ("task 3 of an array", "stackyard runs cancel 2026-11-21-001.3"),
)
@click.argument("run", metavar="RUN")
def cancel(context: Context, run: str) -> None:
    """Cancel a queued or running run: all of its ranks."""
    from stackyard.launch.api import runs

    echo(runs.cancel(find_here(context, run)))


@_verb(
    "everything known about a run",
    ("the last run of this directory", "stackyard runs show"),
    ("the planned and actual places of its ranks", "stackyard runs show --json | jq .placement"),
)
@click.argument("run", metavar="[RUN]", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print record, status, placement, usage and preflight as JSON.")
def show(context: Context, run: str, as_json: bool) -> None:
    """Show what was requested, what was started, where it ran and how it ended."""
    from stackyard.cli.jobs.launchview import show_failure
    from stackyard.launch.api.runs import report

    details = report(find_here(context, run))
    if as_json:
        show_json(_report_json(details))
        return
    _show_facts(details)
    for index, status in details.tasks.items():
        why = (status.first or {}).get("message", "") or status.message
        colored = click.style(status.state, fg=COLORS.get(status.state, "red"))
        echo(f"  {click.style(f'task {index}'.ljust(10), fg='cyan')} {colored} {why}".rstrip())
    if details.status.first:
        show_failure(details.status.state, details.status.first, 1, "", details.paths.root)


def _report_json(details: RunReport) -> dict[str, Any]:
    """The existing parts of a run's report, as plain values."""
    from dataclasses import asdict

    from stackyard.host.run.clock import stamp

    def plain(status: Any) -> dict[str, Any]:
        times = {"started": status.started, "ended": status.ended}
        return {**asdict(status), **{name: stamp(seconds) if seconds else "" for name, seconds in times.items()}}

    tasks = {index: plain(status) for index, status in details.tasks.items()}
    parts = {
        "tasks": tasks, "placement": details.placement, "preflight": details.preflight, "usage": details.usage,
        "staged": details.staged, "attempts": details.attempts,
    }  # fmt: skip
    return {
        "record": asdict(details.record),
        "status": plain(details.status),
        **{name: part for name, part in parts.items() if part},
    }


def _show_facts(details: RunReport) -> None:
    from stackyard.launch.api.runs import profiled

    record, status = details.record, details.status
    state = click.style(status.state, fg=COLORS.get(status.state, "red"))
    name = click.style(details.paths.name, bold=True)
    echo(f"{name}  {state}  {record.created} by {record.user} on {record.host}")
    changes = "with local changes" if record.code.get("changed") else ""
    facts = {
        "command": " ".join(record.command[1:]),
        "started": str(record.plan.get("command", "")),
        "each rank": str(record.plan.get("program", "")),
        "stack": record.stack.get("module", ""),
        "code": f"{record.code.get('commit', '')} {changes}".strip(),
        "nodes": _range(record.intent),
        "job": f"{record.scheduler} {status.job}" if status.job else "",
        "reason": status.message if status.over else "",
        "hosts": " ".join(status.hosts),
        "placement": str(details.placement.get("summary", "")),
        "staged": str(details.staged.get("summary", "")),
        "memory": str(details.usage.get("memory", "")),
        "GPUs": str(details.usage.get("gpus", "")),
        "GPU energy": str(details.usage.get("energy", "")),
        "MPI": str(details.usage.get("mpi", "")),
        "seconds": ", ".join(f"{k} {v:.1f}" for k, v in status.seconds.items()),
        "profiled": ", ".join(profiled(details.paths, record)),
        "directory": str(details.paths.root),
    }
    for number, before in details.attempts.items():
        if before:
            why = before["first"].get("message") or before["state"]
            staged = before.get("staged", {}).get("summary", "")
            copied = f"; staged {staged}" if staged else ""
            facts[f"attempt {number}"] = f"{why}; {counted(len(before['hosts']), 'node')}{copied}"
    for title, text in facts.items():
        if text:
            show_text(f"  {click.style(title.ljust(10), fg='cyan')} {text}")


def _range(intent: dict[str, Any]) -> str:
    """The requested range of nodes in the syntax of ``-N``; empty without one."""
    return f"{intent['least_nodes']}:{intent['nodes']}" if intent.get("least_nodes") else ""


@_verb(
    "what differs between two runs",
    ("the first two runs of a day", "stackyard runs diff 2026-11-21-001 2026-11-21-002"),
    ("a run and the last one, for a program", "stackyard runs diff 001 last --json"),
)
@click.argument("a", metavar="RUN")
@click.argument("b", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def diff(context: Context, a: str, b: str, as_json: bool) -> None:
    """Compare two runs: request, stack, code, environment, versions, hosts, times, end, and what they measured."""
    from stackyard.launch.api.runs import compare

    first, second = find_here(context, a), find_here(context, b)
    rows = [*compare(first, second), *_measured(first, second)]
    if as_json:
        show_json([{"what": what, "a": left, "b": right} for what, left, right in rows])
        return
    if not rows:
        echo("no differences")
        return
    heads = (first.name, second.name) if first.name != second.name else (str(first.root), str(second.root))
    shown = [{"what": what, heads[0]: left or "-", heads[1]: right or "-"} for what, left, right in rows]
    show_table(shown, ("what", *heads))


def _measured(a: RunPaths, b: RunPaths) -> list[tuple[str, str, str]]:
    """The metrics and the memory of two runs, as far as they differ: one run each, so without a verdict."""
    from stackyard.study.api import measure_run

    facts = []
    for measured in (measure_run(paths, energy=False) for paths in (a, b)):
        facts.append({f"metric {value.name}": str(value) for value in measured.values})
        if measured.memory:
            facts[-1]["peak memory"] = f"{measured.memory.peak_bytes / (1 << 20):,.0f} MiB"
    left, right = facts
    names = [name for name in dict.fromkeys([*left, *right]) if left.get(name) != right.get(name)]
    return [(name, left.get(name, ""), right.get(name, "")) for name in names]


def _directory(context: Context) -> Path:
    file = context.site_file()
    return Path.cwd() / (context.site().launch.runs if file else "runs")


def find_here(context: Context, name: str) -> RunPaths:
    """The run of a name, from this directory. Raises InputError."""
    from stackyard.launch.api.runs import find_run

    return find_run(name, _directory(context))


def is_run(context: Context, name: str) -> bool:
    """Whether a run has this name, as seen from this directory."""
    try:
        find_here(context, name)
    except InputError:
        return False
    return True
