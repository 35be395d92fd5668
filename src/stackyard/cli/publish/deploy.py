"""``stackyard deploy``: lock, build, verify and publish."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import Duration, verb
from stackyard.cli.output import echo, show_error, show_json
from stackyard.core.errors import InputError
from stackyard.core.findings import counted, human_bytes
from stackyard.deploy.api import memo_path, recall_deploy
from stackyard.inputs.api import Workspace
from stackyard.yard.api import Yard, current_manifest

if TYPE_CHECKING:
    from stackyard.deploy.api import Outlook, Request, Result, Task


@verb(
    ("build and publish a stack", "stackyard deploy stack.yaml"),
    ("only one variant of its matrix", "stackyard deploy stack.yaml --variant py312-gpu"),
    ("only fill the cache, for a build later or for users' conda", "stackyard deploy --fetch-only stack.yaml"),
    ("build it on a node with GPUs, in a batch job", "stackyard deploy --on gpu -t 2:00 stack.yaml"),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the stack (default: name: in FILE, else its directory).")
@click.option("--version", help="Version of the stack (default: version: in FILE, else today's date).")
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant; several times for more.")
@click.option("--python", metavar="VERSION", help="Version of Python for this deploy, whatever FILE says: 3.12.")
@click.option("--torch-backend", metavar="NAME", help="Build of torch: cpu, cu128, rocm6.4 ..., off for any.")
@click.option("--locked", is_flag=True, help="Fail if a lock is missing or stale instead of solving again.")
@click.option("--allow-unverified", is_flag=True, help="Publish even if a required check was skipped.")
@click.option("--image", type=click.Choice(["prefix", "squashfs"]), help="How the files are kept, whatever FILE says.")
@click.option("--rebuild", is_flag=True, help="Build the next revision of what is there; compile it again, too.")
@click.option("--fetch-only", is_flag=True, help="Put the packages into the yard's cache; build and publish nothing.")
@click.option("--mirror", metavar="PLACE", help="Take the locked files from this mirror, a directory or a URL, alone.")
@click.option("--accept-licence", "accept", multiple=True, metavar="NAME", help="Accept a licence under your name.")
@click.option("--on", metavar="KIND", help="Build in a batch job on a node of this kind (gpu: the one with GPUs).")
@click.option("-t", "--time", "time_min", type=Duration(), help="With --on: wall time.")
@click.option("-A", "--account", help="With --on: account or project.")
@click.option("-p", "--partition", "--queue", "queue", help="With --on: partition or queue.")
@click.option("-q", "short_queue", help="With --on, as for the scheduler: QoS with Slurm, else the queue.")
@click.option(
    "--scheduler-arg", "scheduler_args", multiple=True, help="With --on: extra batch option; ~--FLAG removes one."
)
@click.option("--recorded", hidden=True, type=click.Path(path_type=Path), help="The run of this deploy's batch job.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@catalogued
def command(context: Context, /, files: tuple[Path, ...], dry_run: bool, as_json: bool, **options: Any) -> None:
    """Lock FILE..., build what is missing, verify it through its modules, and publish it.

    FILE is a stack.yaml, an environment.yml or a requirements.txt. Nothing is built or published if no input changed.
    """
    batch = {name: options.pop(name) for name in ("time_min", "account", "queue", "short_queue", "scheduler_args")}
    on, run = options.pop("on"), options.pop("recorded")
    if options.pop("fetch_only"):
        if on or dry_run or options["rebuild"]:
            raise InputError("--fetch-only excludes --on, --dry-run and --rebuild", hint="leave one of them out")
        _fetch(context, files, options, as_json)
        return
    if on:
        from stackyard.cli.publish.deployjob import deploy_on

        deploy_on(context, on, files, batch, options["variants"], dry_run, as_json)
        return
    if run:
        from stackyard.cli.publish.deployjob import recorded

        recorded(run, lambda: _here(context, files, dry_run, as_json, options))
        return
    _here(context, files, dry_run, as_json, options)


def _fetch(context: Context, files: tuple[Path, ...], options: dict[str, Any], as_json: bool) -> None:
    """Fill the yard's cache, and say what is in it now."""
    from dataclasses import asdict

    from stackyard.cli.display import display
    from stackyard.deploy.api import fetch_stacks
    from stackyard.lock.api import tell_notices

    request = _request(context, context.yard(), files, options)
    with display() as progress:
        tell_notices(request.stacks, progress)
        result = fetch_stacks(request, progress)
    if as_json:
        show_json({"locks": [str(path) for path in result.locks], "fetched": [asdict(v) for v in result.variants]})
        return
    for path in result.locks:
        echo(f"lock written: {path}")
    for variant in result.variants:
        packages = f"{counted(variant.conda, 'conda package')} and {counted(variant.pip, 'pip package')}"
        echo(f"{variant.module} is already built" if variant.is_built else f"fetched for {variant.module}: {packages}")


def _here(context: Context, files: tuple[Path, ...], dry_run: bool, as_json: bool, options: dict[str, Any]) -> None:
    """Deploy on this machine."""
    yard = context.yard()
    if not dry_run:
        site_file = context.site_file()
        plain = {name: value for name, value in options.items() if name != "rebuild"}  # the next one does nothing
        request = {"files": [str(f.absolute()) for f in files], "site": str(site_file or ""), **plain}
        remembered = memo_path(yard, request)
        modules = None if options["rebuild"] else recall_deploy(remembered, current_manifest(yard))
        if modules is not None:
            _report_nothing(modules, as_json)
            return
        _deploy(context, yard, files, options, request, as_json)
    else:
        _dry_run(context, yard, files, options, as_json)


def _deploy(
    context: Context, yard: Yard, files: tuple[Path, ...], options: dict[str, Any], said: dict[str, Any], as_json: bool
) -> None:
    from stackyard.cli.display import display
    from stackyard.deploy.api import deploy_stacks

    request = _request(context, yard, files, options)
    with display() as progress:
        result = deploy_stacks(request, progress, remembered=memo_path(yard, said))
    report(context, result, request, progress.notices, as_json)


def _request(context: Context, yard: Yard, files: tuple[Path, ...], options: dict[str, Any]) -> Request:
    from stackyard.deploy.api import deploy_request

    named = {**options, "only_locked": options["locked"], "command": context.command}
    return deploy_request(files, Workspace(context.site(), yard), **{k: v for k, v in named.items() if k != "locked"})


def _dry_run(context: Context, yard: Yard, files: tuple[Path, ...], options: dict[str, Any], as_json: bool) -> None:
    from dataclasses import asdict

    from stackyard.cli.display import display
    from stackyard.deploy.api import preview_deploy
    from stackyard.lock.api import tell_notices

    request = _request(context, yard, files, options)
    with display() as progress:
        tell_notices(request.stacks, progress)
        preview = preview_deploy(request, progress)
    status = preview.outlook.status
    rows = [plan_row(task, status.get(task.module, task.action), request) for task in preview.tasks]
    changed = [
        {"lock": str(locked.path), "because": list(locked.changed)} for locked in preview.locks if locked.changed
    ]
    if as_json:
        published = {"status": status, "changes": asdict(preview.outlook.changes), "policy": preview.outlook.policy}
        show_json({"dry_run": True, "locks": changed, "revisions": rows, **published})
    else:
        _show_dry_run(changed, rows, preview.outlook)


def plan_row(task: Task, action: str, workspace: Workspace) -> dict[str, Any]:
    """The plan for one revision, as a plain object."""
    from stackyard.deploy.api import accepted_licence

    return {
        "module": task.module,
        "action": action,
        "path": str(task.paths.root),
        "conda": len(task.locked.conda),
        "pip": len(task.locked.pip),
        "download_bytes": sum(package.size for package in task.locked.conda)
        + sum(package.size for package in task.locked.pip),
        "licences": [x.name for x in task.variant.licences if accepted_licence(workspace, x) is None],
    }


def _show_dry_run(changed: list[dict[str, Any]], rows: list[dict[str, Any]], outlook: Outlook) -> None:
    from stackyard.cli.yard.changes import show_changes

    for entry in changed:
        echo(f"would write {entry['lock']} ({'; '.join(entry['because'])})")
    for row in rows:
        echo(plan_line(row))
    if outlook.status:
        echo("would change what users see of published revisions:")
        show_changes(outlook.changes)
    if outlook.policy:
        echo("would write all modules again: they differ from what this program and the site now give")


KEPT = {
    "unchanged": "nothing to do",
    "inherited": "nothing to do",
    "updated": "would update its labels",
    "reinstated": "would make it the newest again, as its file describes it",
}
"""What a deploy does with a published revision, by action."""


def plan_line(row: dict[str, Any]) -> str:
    """The plan for one revision, as a sentence."""
    if row["action"] in KEPT:
        return f"{row['module']} is already published: {KEPT[row['action']]}"
    if row["action"] == "publish":
        return f"would verify and publish {row['module']}, already built in {row['path']}"
    packages = f"{row['conda']} conda and {counted(row['pip'], 'pip package')}"
    line = f"would build {row['module']} in {row['path']}: {packages}, {human_bytes(row['download_bytes'])}"
    if row["licences"]:
        line += f"; licences to accept: {', '.join(row['licences'])}"
    return line


def _report_nothing(modules: list[str], as_json: bool) -> None:
    if as_json:
        show_json({"generation": 0, "locks": [], "revisions": [{"module": m, "status": "unchanged"} for m in modules]})
    else:
        echo(f"nothing changed: {', '.join(modules)} {'is' if len(modules) == 1 else 'are'} published")


def report(context: Context, result: Result, workspace: Workspace, said: list[str], as_json: bool) -> None:
    """Print the result of a deploy; raises Exit if a variant is not usable."""
    from stackyard.cli.publish.summary import deploy_json, show_deploy
    from stackyard.expose.api import users_path

    if as_json:
        show_json(deploy_json(result))
    else:
        yards = [ancestor for ancestor in workspace.yard.lineage() if ancestor.modules.is_dir()]
        show_deploy(
            result, [users_path(Workspace(workspace.site, ancestor)) for ancestor in yards], context.program, said
        )
    errors = [outcome.error for outcome in result.outcomes if outcome.error is not None]
    for error in {(str(e.where), e.message, e.detail, e.hint): e for e in errors}.values():
        show_error(error)  # once, where several variants stop at the same thing
    if result.ok:
        return
    raise click.exceptions.Exit(errors[0].exit_code if errors else 3)
