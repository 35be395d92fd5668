"""The example sites: what each of their launchers says, kept beside the site file for readers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from launcherbed import shown, text_of

from stackyard.core.findings import refuse
from stackyard.inputs.models import Site
from stackyard.inputs.sites.site import load_site
from stackyard.launch.layout.nodes import pick_kind
from stackyard.launch.layout.placing import plan_layout
from stackyard.launch.plan.launchers import default_name, get
from stackyard.launch.plan.model import LaunchRequest
from stackyard.launch.request.intent import Intent

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SITES = sorted(path.parent.name for path in EXAMPLES.glob("*/site.yaml"))


SEVERAL = {"pytorch": "h200"}
"""The kind of node where a site has several with GPUs."""


def site_of(name: str) -> Site:
    return load_site(EXAMPLES / name / "site.yaml")


def compare(site: str, file: str, text: str) -> None:
    """Words, so that spacing is free."""
    golden = EXAMPLES / site / "golden" / file
    if os.environ.get("STACKYARD_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert golden.read_text().split() == text.split()


def rendered(site: Site, name: str, intent: Intent, **changes: bool) -> str:
    layout = plan_layout(intent, pick_kind(site, intent))
    refuse(layout.findings)
    line = get(name).line(LaunchRequest(layout, site.scheduler, mpi=True, **changes))
    return f"== {name}\n{shown(line)}"


@pytest.mark.parametrize("name", SITES)
def test_every_launcher(name: str) -> None:
    """One rank per GPU on two nodes (one where there is no scheduler), as `stackyard explain` compares launchers."""
    site = site_of(name)
    intent = Intent(nodes=1 if default_name(site.scheduler) == "local" else 2, node_kind=SEVERAL.get(name, ""))
    layout = plan_layout(intent, pick_kind(site, intent))
    refuse(layout.findings)
    compare(name, f"launch-{intent.nodes}-nodes.txt", text_of(layout, site.scheduler, mpi=True))


@pytest.mark.parametrize("name", SITES)
def test_each_rank_with_its_own_gpus(name: str) -> None:
    site = site_of(name)
    launcher = default_name(site.scheduler)
    nodes = 1 if launcher == "local" else 2
    compare(
        name,
        "launch-own-gpus.txt",
        rendered(site, launcher, Intent(nodes=nodes, gpu_visibility="own", node_kind=SEVERAL.get(name, ""))),
    )


@pytest.mark.parametrize("nodes", [18, 144])
def test_summit_by_racks(nodes: int) -> None:
    """The line does not grow with the nodes."""
    text = rendered(site_of("summit-open-ce"), "jsrun", Intent(nodes=nodes), gpu_aware_mpi=True)
    compare("summit-open-ce", f"launch-{nodes}-nodes.txt", text)
    line = text.splitlines()[1]
    assert line == f"jsrun -n{nodes} -r1 -g6 -a6 -c42 -bpacked:7 -dpacked -X1 --smpiargs=-gpu"


def test_lumi_binds_as_its_guide_says() -> None:
    """docs.lumi-supercomputer.eu, "Distribution and binding": the masks of GPUs 0 to 7."""
    text = rendered(site_of("lumi"), "srun", Intent(nodes=2, node_kind="lumi-g"))
    masks = ["fe000000000000", "fe00000000000000", "fe0000", "fe000000", "fe", "fe00", "fe00000000", "fe0000000000"]
    assert "--cpu-bind=mask_cpu:" + ",".join(f"0x{mask}" for mask in masks) in text


def test_lumi_c_needs_no_masks() -> None:
    text = rendered(site_of("lumi"), "srun", Intent(nodes=2, node_kind="lumi-c"))
    assert "-c 64 --threads-per-core=1 --cpu-bind=threads" in text.splitlines()[1]
    assert "gpu" not in text.splitlines()[1]
