"""``stackyard doctor`` without an argument: what is wrong with this shell, this machine and the yard."""

from __future__ import annotations

import os
from dataclasses import replace

from stackyard.cli.context import Context
from stackyard.cli.findings import show_finding
from stackyard.cli.output import echo, show_json
from stackyard.core.findings import counted


def show(context: Context, *, as_json: bool) -> bool:
    """Print what is found; whether it is more than notes."""
    from stackyard.doctor.api import examine

    reading = replace(context, keeps=False)
    found = examine(os.environ, reading.workspace)
    if as_json:
        show_json(found.to_json())
        return not found.is_clean
    for about, findings in found.findings.items():
        if findings:
            echo(f"{about}: {counted(len(findings), 'finding')}")
        for finding in findings:
            show_finding(finding, indent="  ")
    if not any(found.findings.values()):
        echo(f"nothing found in this shell, machine and yard, by {counted(found.checks, 'check')}")
    return not found.is_clean
