"""``stackyard deploy``: lock, build, verify and publish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.jobs.intents import Duration
from stackyard.cli.output import echo, human_bytes, show_error, show_json, show_notice
from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.deploy.api import memo_digests, memo_path, recall_deploy, remember_deploy
from stackyard.yard.api import Yard, current_manifest

EXAMPLES = (
    ("build and publish a stack", "stackyard deploy stack.yaml"),
    ("only one variant of its matrix", "stackyard deploy stack.yaml --variant py312-gpu"),
    ("build it on a node with GPUs, in a batch job", "stackyard deploy --on gpu -t 2:00 stack.yaml"),
)


@click.command(cls=Verb, examples=EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the stack (default: name: in FILE, else its directory).")
@click.option("--version", help="Version of the stack (default: version: in FILE, else today's date).")
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant; several times for more.")
@click.option("--locked", is_flag=True, help="Fail if a lock is missing or stale instead of solving again.")
@click.option("--allow-unverified", is_flag=True, help="Publish even if a required check was skipped.")
@click.option("--image", type=click.Choice(["prefix", "squashfs"]), help="How the files are kept, whatever FILE says.")
@click.option("--rebuild", is_flag=True, help="Build the next revision of what is there; compile it again, too.")
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
@click.pass_obj
def command(context: Context, /, files: tuple[Path, ...], dry_run: bool, as_json: bool, **options: Any) -> None:
    """Lock FILE..., build what is missing, verify it through its modules, and publish it.

    FILE is a stack.yaml, an environment.yml or a requirements.txt. Nothing is built or published if no input changed.
    """
    batch = {name: options.pop(name) for name in ("time_min", "account", "queue", "short_queue", "scheduler_args")}
    on, run = options.pop("on"), options.pop("recorded")
    if on:
        from stackyard.cli.publish.deployjob import deploy_on

        deploy_on(context, on, files, batch, options["variants"], dry_run, as_json)
        return
    if run:
        from stackyard.cli.publish.deployjob import recorded

        recorded(run, lambda: _here(context, files, dry_run, as_json, options))
        return
    _here(context, files, dry_run, as_json, options)


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
    from stackyard.deploy.api import building, deploy

    request = _request(context, yard, files, options)
    with (
        building(yard, request.site, [stack.name for stack in request.stacks], show_notice) as held,
        display() as progress,
    ):
        result = deploy(request, progress, held)
        _remember(memo_path(yard, said), request, result)
    report(context, result, request, progress.notices, as_json)


def _remember(path: Path, request: Any, result: Any) -> None:
    """Note that this deploy would do nothing now, unless a file has changed since it was read."""
    from stackyard.deploy.api import memo_inputs, still_as_read

    files = memo_inputs(request.stacks, request.site, request.yard) if result.is_final else None
    now = memo_digests(files or ())
    if files is not None and still_as_read(request.read, now):
        remember_deploy(path, now, [outcome.module for outcome in result.outcomes], result.manifest)


def _request(context: Context, yard: Yard, files: tuple[Path, ...], options: dict[str, Any]) -> Any:
    from stackyard.cli.publish.stacks import load_stacks
    from stackyard.deploy.api import Request, hashes_as_read

    if len(files) > 1 and (options["name"] or options["version"]):
        raise InputError("--name and --version require exactly one FILE", hint="deploy the files one by one")
    site = _with_mirror(context.site(), options["mirror"])
    stacks = load_stacks(files, site, yard, options["name"], options["version"], options["variants"])
    if options["image"]:
        stacks = tuple(_in_form(stack, options["image"]) for stack in stacks)
    return Request(
        stacks,
        site,
        yard,
        only_locked=options["locked"],
        allow_unverified=options["allow_unverified"],
        accept=options["accept"],
        rebuild=options["rebuild"],
        command=context.command,
        read=hashes_as_read(stacks, site),
    )


def _in_form(stack: Any, form: str) -> Any:
    """The stack with its files kept in this form."""
    if form != "prefix" and any(variant.on for variant in stack.variants):
        hint = "leave out --image; its base may be an image"
        raise InputError(f"{stack.file}: a stack with a `base:` has files of its own, not an image", hint=hint)
    return stack.in_form(form)


def _with_mirror(site: Any, place: str | None) -> Any:
    """The site with the mirror of the command line instead of its own."""
    if not place:
        return site
    return site.model_copy(update={"mirror": place if "://" in place else str(Path(place).absolute())})


def _dry_run(context: Context, yard: Yard, files: tuple[Path, ...], options: dict[str, Any], as_json: bool) -> None:
    from dataclasses import asdict, replace

    from stackyard.cli.display import display
    from stackyard.cli.publish.stacks import tell
    from stackyard.deploy.api import lock_all, outlook, plan_deploy, require_deployable, solving
    from stackyard.host.files.scratch import scratch

    request = _request(context, yard, files, options)
    require_deployable(request)
    with (
        scratch("dry-run") as folder,
        solving(yard, request.site, lambda: folder, dry_run=True) as apart,
        display() as progress,
    ):
        tell(request.stacks, progress)
        locks = lock_all(replace(request, yard=apart), progress)
        tasks = plan_deploy(request, locks)
        expected = outlook(request, tasks)
    rows = [plan_row(task, expected.status.get(task.module, task.action), yard, request.site) for task in tasks]
    changed = [{"lock": str(locked.path), "because": list(locked.changed)} for locked in locks if locked.changed]
    if as_json:
        published = {"status": expected.status, "changes": asdict(expected.changes), "policy": expected.policy}
        show_json({"dry_run": True, "locks": changed, "revisions": rows, **published})
    else:
        _show_dry_run(changed, rows, expected)


def plan_row(task: Any, action: str, yard: Yard, site: Any) -> dict[str, Any]:
    """What would be done about one revision, as a plain object."""
    from stackyard.deploy.api import accepted_licence

    return {
        "module": task.module,
        "action": action,
        "path": str(task.paths.root),
        "conda": len(task.locked.conda),
        "pip": len(task.locked.pip),
        "download_bytes": sum(package.size for package in (*task.locked.conda, *task.locked.pip)),
        "licences": [x.name for x in task.variant.licences if accepted_licence(yard, site, x) is None],
    }


def _show_dry_run(changed: list[dict[str, Any]], rows: list[dict[str, Any]], outlook: Any) -> None:
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
    """What would be done about one revision, as a sentence."""
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


def report(context: Context, result: Any, request: Any, said: list[str], as_json: bool) -> None:
    """Print what a deploy did; raises Exit where a variant is not usable."""
    from stackyard.cli.publish.summary import deploy_json, show_deploy
    from stackyard.expose.api import users_path

    if as_json:
        show_json(deploy_json(result))
    else:
        yards = [each for each in request.yard.lineage() if each.modules.is_dir()]
        show_deploy(result, [users_path(each, request.site) for each in yards], context.program, said)
    errors = [outcome.error for outcome in result.outcomes if outcome.error is not None]
    for error in {(str(e.where), e.message, e.detail, e.hint): e for e in errors}.values():
        show_error(error)  # once, where several variants stop at the same thing
    if result.ok:
        return
    raise click.exceptions.Exit(errors[0].exit_code if errors else 3)
