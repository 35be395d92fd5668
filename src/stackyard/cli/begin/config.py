"""``stackyard config``: which files, yard, channels and indexes count here, and from where."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import show_json, show_text
from stackyard.core.findings import counted

if TYPE_CHECKING:
    from stackyard.inputs.api import PipPolicy


@verb(
    ("what counts in this shell", "stackyard config"),
    ("one value, for a script", "stackyard config --json"),
)
@click.option("--json", "as_json", is_flag=True, help="Print an object.")
def command(context: Context, as_json: bool) -> None:
    """Show the site file, yard, scheduler, channels and indexes that count in this shell, and where each comes from."""
    rows = _rows(context)
    if as_json:
        show_json({key: {"value": value, "from": origin} for key, value, origin in rows})
        return
    for key, value, origin in rows:
        shown = ", ".join(value) if isinstance(value, list) else value
        behind = f"   {click.style(f'({origin})', dim=True)}" if origin else ""
        show_text(f"{click.style(key.ljust(13), bold=True)}{shown or 'none'}{behind}")


def _rows(context: Context) -> list[tuple[str, Any, str]]:
    site, file = context.site(), context.site_file()
    of_site = str(file) if file else "the default"
    kinds = [f"{name} ({', '.join([counted(kind.cores, 'core'), *_gpus(kind.gpu.count)])})"
             for name, kind in site.nodes.items()]  # fmt: skip
    return [
        ("site", str(file or ""), _origin_of_site(context)),
        ("yard", str(context.yard_root()), _origin_of_yard(context)),
        ("site's yard", site.yard, of_site if site.yard else ""),
        ("scheduler", site.scheduler.kind or "detected", of_site if site.scheduler.kind else "by each job"),
        ("nodes", kinds or "detected", of_site if kinds else "by each job"),
        (
            "channels",
            list(site.channels.default),
            of_site if "default" in site.channels.model_fields_set else "the default",
        ),
        ("indexes", *_indexes(site.pip, of_site)),
        (
            "torch",
            site.pip.torch_backend or "chosen",
            of_site if site.pip.torch_backend else "by the accelerator or the nodes",
        ),
        ("mirror", site.mirror, of_site if site.mirror else ""),
    ]


def _gpus(count: int) -> list[str]:
    return [counted(count, "GPU")] if count else []


def _indexes(policy: PipPolicy, of_site: str) -> tuple[list[str], str]:
    """The indexes of every stack whose file names none, and where the first one is from."""
    from stackyard.host.tools.pipconf import read_config
    from stackyard.inputs.api import PipOptions, pip_settings

    found, _ = pip_settings(policy, PipOptions(), os.environ)
    by_pip = policy.read_pip_conf and read_config(os.environ).keys() & {"index-url", "no-index"}
    return list(found.indexes), of_site if policy.index_url else "pip's configuration" if by_pip else "the default"


def _origin_of_site(context: Context) -> str:
    if context.site_option is not None:
        return "--site"
    return "$STACKYARD_SITE" if os.environ.get("STACKYARD_SITE") else ""


def _origin_of_yard(context: Context) -> str:
    if context.yard_option is not None:
        return "--yard"
    if os.environ.get("STACKYARD_HOME"):
        return "$STACKYARD_HOME"
    return "user_yard of the site" if context.site().user_yard else "the default"
