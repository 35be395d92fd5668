"""What a site's queues take, said before a job is submitted; and node features that are requested only where needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from sitesubmit import EXAMPLES, submit

from stackyard.inputs.sites.site import load_site


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("site", "words", "said", "hint"),
    [
        ("polaris", ("-N", "2", "-t", "30"), "queue prod does not take 2 nodes for 0:30:00", "use --queue debug or "),
        ("polaris", ("-N", "10", "-t", "600"), "10 to 24 nodes for up to 3 h, 25 to 99", "use --queue preemptable"),
        ("polaris", ("-N", "2", "-t", "30", "--spare", "1", "-q", "debug"), "take 3 nodes", "--queue debug-scaling"),
        ("frontier", ("-N", "2", "-t", "600"), "queue batch does not take", "use --queue extended"),
        ("frontier", ("-N", "2", "-t", "300", "-q", "debug"), "quality of service debug does not", "--queue extended"),
        (
            "lumi",
            ("--node-kind", "lumi-g", "-N", "8", "-p", "small-g"),
            "small-g does not take 8",
            "--queue standard-g",
        ),
        ("summit-open-ce", ("-N", "6000"), "does not take 6000 nodes", "--queue debug"),
    ],
)
def test_a_queue_that_does_not_take_the_job_is_named_with_one_that_does(
    site: str, words: tuple[str, ...], said: str, hint: str
) -> None:
    done = submit(site, *words, expect=2)
    assert said in done.err
    assert hint in done.err.partition("hint: ")[2]


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("polaris", ("-N", "2", "-t", "30", "-q", "debug")),
        ("polaris", ("-N", "100", "-t", "1440")),
        ("polaris", ("-N", "2", "-q", "R123")),  # a reservation, which no limit is known of
        ("frontier", ("-N", "2", "-t", "120", "-q", "debug")),
    ],
)
def test_a_queue_that_takes_it_is_let_be(site: str, words: tuple[str, ...]) -> None:
    assert "hint" not in submit(site, *words).err


def test_the_local_disks_are_requested_only_where_asked_for() -> None:
    assert "nvme" not in submit("frontier", "-N", "2", "-t", "60").out
    assert "#SBATCH --constraint=nvme\n" in submit("frontier", "-N", "2", "-t", "60", "--local-disk").out
    both = submit("frontier", "-N", "2", "-t", "60", "--local-disk", "-C", "x").out
    assert '"--constraint=x&nvme"' in both


def test_no_site_turns_on_what_a_program_must_be_linked_for() -> None:
    """Cray MPICH: a program without the GPU transport library exits at once."""
    sites = [load_site(file) for file in EXAMPLES.glob("*/site.yaml")]
    set_by = {name for site in sites for kind in site.nodes.values() for name in kind.variables}
    set_by |= {name for site in sites for name in (*site.launch.variables, *site.run_variables)}
    assert "MPICH_GPU_SUPPORT_ENABLED" not in set_by


@pytest.mark.parametrize(
    ("words", "gib"),
    [
        ((), 0.85 * 384),  # 4 GPUs, all 40 cores
        (("-r", "1", "-c", "10"), 0.85 * 384),  # one rank has all GPUs
        (("-r", "1", "-c", "10", "-g", "1"), 0.85 * 384 / 4),
        (("-r", "1", "-c", "20", "-g", "1"), 0.85 * 384 / 2),
        (("-r", "2", "-c", "5", "-g", "0", "--node-kind", "cpu"), 0.85 * 192 / 4),
        (("-g", "1", "-r", "1", "-c", "1", "--memory", "3"), 3),
    ],
)
def test_a_share_of_a_node_has_memory(words: tuple[str, ...], gib: float) -> None:
    """The nodes of this site are shared between jobs; Slurm's default is little memory per core."""
    kind = () if "--node-kind" in words else ("--node-kind", "gpu")
    script = submit("slurm-cluster", *kind, *words).out
    assert f"#SBATCH --mem={int(gib * 1024)}M\n" in script


def test_a_whole_node_has_all_its_memory() -> None:
    assert "#SBATCH --mem=0\n" in submit("slurm-cluster", "--node-kind", "gpu", "--exclusive").out
