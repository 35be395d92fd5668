"""`lint --fix` over composed scripts: many directives, launchers and shell forms, with the truth from the manuals.

Each script has the truth beside it, computed from the manuals (`composing`) and not by lint. The job file, planned
again, has the same sizes, words and preparation, or a note says so.
"""

from __future__ import annotations

import re

import pytest
from composing import TAGS, Truth, composed

from stackyard.core.errors import InputError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, Site
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.lint.api import lint_text, to_intent

SITES = {
    kind: Site(
        nodes={"n": NodeKind(cores=512, gpu=Gpu(count=64))}, scheduler=Scheduler(kind=kind, csm=True, exclusive=False)
    )
    for kind in TAGS
}


_NUMBERS = {
    "nodes": r"nodes is \d|check nodes|fills one node|expects \d+ nodes|taken as \d+ nodes|ranks on \d+ nodes",
    "ranks": r"number of nodes is not in the script|check [\w, ]*ranks_per_node|ranks are wanted|fills one node",
    "cores": r"check [\w, ]*cores_per_rank",
    "gpus": r"check [\w, ]*gpus_per_rank|GPUs? on each node",
}
"""What a note about a number says."""


def lost(kind: str, text: str, truth: Truth) -> list[str]:
    """What neither the job nor a note has."""
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    said = "\n".join(notes)
    try:
        plan = make_plan(intent, SITES[kind], PlanContext(kind, environ={"PATH": "/usr/bin"}), head=True)
    except InputError as error:  # the site's ranks where the script does not say how many
        return [] if re.search(_NUMBERS["ranks"], said) else [str(error), said]
    layout = plan.layout
    each = layout.ranks // layout.nodes
    got = {
        "nodes": layout.nodes,
        "ranks": layout.ranks,
        "cores": layout.cores_per_rank,
        "gpus": layout.gpus_per_rank * each,
    }
    wanted = {name: getattr(truth, name) for name in got}
    found = [
        f"{name}: {got[name]}, expected {wanted[name]}"
        for name in got if wanted[name] not in (None, got[name]) and not re.search(_NUMBERS[name], said)
    ]  # fmt: skip
    found += (
        [f"time {intent.batch.time_min}"] if intent.batch.time_min != truth.time_min and "wall time" not in said else []
    )
    memory = truth.memory_gib is not None and abs(intent.batch.memory_gib - truth.memory_gib) > 0.001
    found += [f"memory {intent.batch.memory_gib}"] if memory and "mem" not in said else []
    found += [f"program {intent.program}"] if intent.program != truth.program else []
    assert plan.head is not None
    head = " ".join(word for words in plan.head.directives for word in words)
    job = "\n".join((said, head, *intent.prologue, str(intent.variables), str(intent.batch), intent.cwd))
    texts = [*truth.said, *truth.lines.values()]
    found += [f"text {each!r}" for each in texts if each not in job and each.replace("'", "") not in job]
    return [*found, *([said] if found else [])]


@pytest.mark.parametrize("kind", TAGS)
def test_nothing_is_lost_in_composed_scripts(kind: str) -> None:
    for seed in range(40):
        text, truth = composed(kind, seed)
        assert not lost(kind, text, truth), f"seed {seed}\n{text}"
