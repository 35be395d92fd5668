"""``stackyard runs``: what ran, how it ended; follow, read, end and compare runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.output import show_json, show_table
from stackyard.errors import InputError

COLORS = {"done": "green", "running": "cyan", "queued": "cyan", "planned": "white"}


@click.group(invoke_without_command=True, short_help="list, follow, end and compare runs")
@click.option("--all", "everywhere", is_flag=True, help="The runs of all folders, not only of this one.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def command(ctx: click.Context, everywhere: bool, as_json: bool) -> None:
    """List the runs that were started in this folder.

    RUN is a name, the end of a name, a folder, or `last`; with `.3` behind it task 3 of an array.
    """
    if ctx.invoked_subcommand is not None:
        return
    from stackyard.launch.records import find
    from stackyard.launch.records.record import read_run

    found = find.known_runs(_folder(ctx.obj), everywhere=everywhere)
    rows = [find.row(paths, read_run(paths), find.current_status(paths)) for paths in found]
    if as_json:
        show_json(rows)
        return
    if not rows:
        click.echo("no runs here; `stackyard runs --all` lists those of other folders")
        return
    show_table([_shown(row, everywhere) for row in rows], ["run", "how", "state", "nodes", "time", "job", "program"])


def _shown(row: dict[str, Any], everywhere: bool) -> dict[str, str]:
    state = row["state"] if not row["code"] else f"{row['state']} ({row['code']})"
    count = f", {row['tasks'].get('done', 0)} of {sum(row['tasks'].values())} done" if row["tasks"] else ""
    return {
        "run": row["folder"] if everywhere else row["run"],
        "how": row["how"],
        "state": click.style(state, fg=COLORS.get(row["state"], "red")) + count,
        "nodes": str(row["nodes"]),
        "time": f"{row['seconds']:.1f} s" if row["seconds"] else "",
        "job": row["job"],
        "program": row["program"][:60],
    }


@command.command(short_help="follow a run")
@click.argument("run", metavar="[RUN]", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print how it ended as JSON.")
@click.pass_obj
def attach(context: Context, run: str, as_json: bool) -> None:
    """Follow a run to its end: its phases and the output of its first rank. Ctrl-C leaves it alone."""
    from stackyard.cli.verbs.submit import follow_run

    follow_run(_find(context, run), as_json=as_json)


@command.command(short_help="what the ranks printed")
@click.argument("run", metavar="[RUN]", default="last")
@click.option("-r", "--rank", type=click.IntRange(0), help="One rank; default: the first. The launcher's: --launcher.")
@click.option("--launcher", is_flag=True, help="What the launcher itself printed.")
@click.option("--where", is_flag=True, help="Only say where the logs are.")
@click.pass_obj
def logs(context: Context, run: str, rank: int | None, launcher: bool, where: bool) -> None:
    """Print a rank's log."""
    step = _find(context, run).main
    path = step.launcher_log if launcher else step.rank_log(rank or 0)
    if where:
        click.echo(path if launcher or rank is not None else step.logs)
        return
    if not path.exists():
        if tasks := sorted(step.root.glob("array/*/logs"), key=lambda found: int(found.parent.name)):
            name = f"{step.root.name}.{tasks[0].parent.name}"
            raise InputError(f"{step.root.name} is an array", hint=f"`stackyard runs logs {name}`: one of its tasks")
        there = len(list(step.logs.glob("rank-*.log")))
        raise InputError(f"there is no {path}", hint=f"this run has the logs of {there} ranks in {step.logs}")
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            sys.stdout.buffer.write(block)


@command.command(short_help="end a run")
@click.argument("run", metavar="RUN")
@click.pass_obj
def cancel(context: Context, run: str) -> None:
    """End a queued or running run: all of its ranks."""
    from stackyard.launch.records import find

    click.echo(find.cancel(_find(context, run)))


@command.command(short_help="everything known about a run")
@click.argument("run", metavar="[RUN]", default="last")
@click.option("--json", "as_json", is_flag=True, help="Record, status, placement and preflight as JSON.")
@click.pass_obj
def show(context: Context, run: str, as_json: bool) -> None:
    """What was asked, what was started, where it ran, how it ended."""
    import json
    from dataclasses import asdict

    from stackyard.cli.launchview import show_failure
    from stackyard.launch.records import find
    from stackyard.launch.records.record import read_run

    paths = _find(context, run)
    record, status = read_run(paths), find.why_ended(paths, find.current_status(paths), patience_s=0)
    files = {"receipt": paths.placement, "gate": paths.preflight}
    more = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}
    if as_json:
        tasks = {index: asdict(each) for index, each in find.array_tasks(paths).items()}
        show_json({"record": asdict(record), "status": asdict(status), **({"tasks": tasks} if tasks else {}), **more})
        return
    state = click.style(status.state, fg=COLORS.get(status.state, "red"))
    click.echo(f"{click.style(paths.name, bold=True)}  {state}  {record.created} by {record.user} on {record.host}")
    for title, text in (
        ("asked for", " ".join(record.command[1:])),
        ("started", str(record.plan.get("command", ""))),
        ("each rank", str(record.plan.get("program", ""))),
        ("stack", record.stack.get("module", "")),
        (
            "code",
            " ".join(filter(None, [record.code.get("commit", ""), "with changes" * bool(record.code.get("changed"))])),
        ),
        ("job", f"{record.scheduler} {status.job}".strip() if status.job else ""),
        ("because", status.message if status.over else ""),
        ("hosts", " ".join(status.hosts)),
        ("placement", str(more.get("receipt", {}).get("summary", ""))),
        ("seconds", ", ".join(f"{k} {v:.1f}" for k, v in status.seconds.items())),
        ("folder", str(paths.root)),
    ):
        if text:
            click.echo(f"  {click.style(title.ljust(10), fg='cyan')} {text}")
    for index, each in find.array_tasks(paths).items():
        why = (each.first or {}).get("message", "") or each.message
        colored = click.style(each.state, fg=COLORS.get(each.state, "red"))
        click.echo(f"  {click.style(f'task {index}'.ljust(10), fg='cyan')} {colored} {why}".rstrip())
    if status.first:
        show_failure(status.state, status.first, 1, "", paths.root)


@command.command(short_help="what differs between two runs")
@click.argument("a", metavar="RUN")
@click.argument("b", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
@click.pass_obj
def diff(context: Context, a: str, b: str, as_json: bool) -> None:
    """Compare two runs: what was asked, stack, code, environment, versions, hosts, times, end."""
    from stackyard.launch.records import find

    rows = find.compare(_find(context, a), _find(context, b))
    if as_json:
        show_json([{"what": what, "a": left, "b": right} for what, left, right in rows])
        return
    for what, left, right in rows:
        click.echo(click.style(what, bold=True))
        click.echo(f"  {click.style('-', fg='red')} {left or '(not there)'}")
        click.echo(f"  {click.style('+', fg='green')} {right or '(not there)'}")
    if not rows:
        click.echo("the two runs do not differ")


def _folder(context: Context) -> Path:
    file = context.site_file()
    return Path.cwd() / (context.site().launch.runs if file else "runs")


def _find(context: Context, name: str) -> Any:
    from stackyard.launch.records.find import find_run

    return find_run(name, _folder(context))
