"""The heads of batch scripts: golden files, the strings that Summit's users wrote, and what cannot be said."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batchbed import (
    CSM,
    FLUX,
    GOLDEN,
    LSF,
    PBS,
    PERLMUTTER,
    PLAIN,
    POLARIS,
    REQUESTS,
    SLURM,
    SUMMIT,
    golden,
    head,
    request,
)

from stackyard.core.errors import InputError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.model import BatchHead, Reason
from stackyard.launch.plan.schedulers.lsf import reservation

PAGES = Path(__file__).resolve().parents[3] / "shared" / "seeds"


@pytest.mark.parametrize("name", REQUESTS)
def test_the_head_is_as_agreed(name: str) -> None:
    assert golden(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REQUESTS)
def test_every_directive_says_what_it_asks_for(name: str) -> None:
    made, text = head(name)
    assert [reason.words for reason in made.reasons] == list(made.directives)
    assert all(
        reason.reason and not reason.reason.endswith(".") and "\n" not in reason.reason for reason in made.reasons
    )
    assert len(text.splitlines()) == len(made.directives)
    assert all(line.startswith(made.prefix + " ") for line in text.splitlines())


@pytest.mark.parametrize("name", REQUESTS)
def test_a_line_is_quoted_once(name: str) -> None:
    made, text = head(name)
    for directive, line in zip(made.directives, text.splitlines(), strict=True):
        assert tuple(shlex.split(line[len(made.prefix) :])) == directive


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(REQUESTS)


@pytest.mark.parametrize(("nodes", "slots", "racks"), [(2, 85, 1), (18, 757, 1), (19, 799, 2), (144, 6049, 8)])
def test_reservation_of_racks(nodes: int, slots: int, racks: int) -> None:
    count, string = reservation(nodes, 42, 18)
    assert count == slots
    assert string.endswith(f"+{nodes * 42}*{{select[((CN)&&(type==any))]order[r15s:pg]span[ptile=42]"
                           f"cu[type=rack:maxcus={racks}]}}")  # fmt: skip


def test_reservation_of_nothing() -> None:
    with pytest.raises(InputError, match="cannot reserve 0 nodes"):
        reservation(0, 42, 18)


def _page_scripts() -> list[list[list[str]]]:
    """The #BSUB lines of the page's two examples, as words; blanks inside a reservation do not count."""
    found = sorted(PAGES.glob("004_*.txt"))
    if not found:
        pytest.skip("the page about Summit is not beside this checkout")
    blocks: list[list[list[str]]] = [[]]
    for line in found[0].read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("#BSUB"):
            blocks[-1].append(_words(line.strip()[5:]))
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if ["-csm", "y"] in block]


def _words(text: str) -> list[str]:
    # "-R 1*{select[...]}" stands there without quotes and without blanks, once with both: one word either way
    flag, _, value = text.strip().partition(" ")
    return [flag, re.sub(r"\s+", "", value.strip().strip('"'))]


def test_the_reservations_of_the_page_about_summit() -> None:
    two, many = _page_scripts()
    for script, name in ((two, "lsf-racks-2"), (many, "lsf-racks-144")):
        ours = [_words(line[5:]) for line in head(name)[1].splitlines()]
        assert [words for words in script if words not in ours] == []
    exact = next(line for line in sorted(PAGES.glob("004_*.txt"))[0].read_text().splitlines() if "84*{" in line)
    assert exact.split("-R ", 1)[1] == reservation(2, 42, 18)[1]
    assert {words[0] for words in many} | {"-csm"} == {
        line.split()[1] for line in head("lsf-racks-144")[1].splitlines()
    }


def test_expert_mode_never_names_nodes() -> None:
    for name in ("lsf-racks-2", "lsf-racks-144"):
        flags = {directive[0] for directive in head(name)[0].directives}
        assert "-csm" in flags
        assert not flags & {"-nnodes", "-ln_slots", "-ln_mem", "-cn_cu"}


REFUSED: dict[str, tuple[Any, str]] = {
    "racks of unknown size": (request(PLAIN, SLURM, pack="racks"), "number of nodes per rack"),
    "a segment that does not fit": (
        request(PLAIN, SLURM.model_copy(update={"rack_nodes": 16, "rack": "segment"}), 24, pack="racks"),
        "cannot split 24 nodes into segments of 16",
    ),
    "Slurm has no place=group": (
        request(PLAIN, SLURM.model_copy(update={"rack_nodes": 4, "rack": "group"}), pack="racks"), "place=group",
    ),
    "LSF has no QoS": (request(SUMMIT, CSM, qos="high"), "quality of service"),
    "easy mode takes no feature": (request(SUMMIT, CSM, constraint="nvme"), "no resource string"),
    "CSM gives all memory": (request(SUMMIT, CSM, memory_gib=1), "all their memory"),
    "racks and a feature": (request(SUMMIT, CSM, pack="racks", constraint="x"), "cannot combine racks"),
    "PBS has no QoS": (request(POLARIS, PBS, qos="high"), "quality of service"),
    "PBS has no reservation": (request(POLARIS, PBS, reservation="R1"), "reservation"),
    "PBS has no signal": (request(POLARIS, PBS, signal_s=60), "signal"),
    "PBS arrays are one range": (request(POLARIS, PBS, array="1,3"), "array 1,3"),
    "PBS arrays have no limit": (request(POLARIS, PBS, array="0-9%2"), "array 0-9%2"),
    "PBS features have values": (request(POLARIS, PBS, constraint="gpu"), "resource and its value"),
    "PBS racks need a resource": (
        request(POLARIS, PBS.model_copy(update={"rack_group": ""}), pack="racks"), "resource that nodes of a rack",
    ),
    "Flux has no QoS": (request(PLAIN, FLUX, qos="high"), "quality of service"),
    "Flux has no arrays": (request(PLAIN, FLUX, array="0-1"), "job arrays"),
    "Flux has no mail": (request(PLAIN, FLUX, mail="me@example.org"), "mail"),
    "Flux has no racks": (request(PLAIN, FLUX, pack="racks"), "racks"),
    "Flux has no memory": (request(PLAIN, FLUX, memory_gib=1), "memory"),
    "a dependency of another scheduler": (request(PLAIN, FLUX, dependency="done(12)"), "not a valid Flux dependency"),
    "an option with an open quote": (request(PLAIN, SLURM, scheduler_args=("--comment='a",)), "cannot split the"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_said_is_an_error_with_a_hint(what: str) -> None:
    asked, message = REFUSED[what]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        schedulers.get(asked.scheduler.kind, asked.scheduler).head(asked)
    assert caught.value.hint or "split" in message


@pytest.mark.parametrize("kind", ["lsf", "pbs"])
@pytest.mark.parametrize("word", ["both ' and \"", "two\nlines"])
def test_a_word_that_no_quotes_can_hold(kind: str, word: str) -> None:
    with pytest.raises(InputError):
        schedulers.get(kind).head_text(BatchHead("#X", (("-J", word),), (Reason(("-J", word), "x"),)))


def test_linear_selection_gets_gpus_per_node() -> None:
    scheduler = SLURM.model_copy(update={"linear": True, "gpu_request": "gpus-per-task"})
    made = schedulers.get("slurm").head(request(PERLMUTTER, scheduler))
    assert ("--gpus-per-node=4",) in made.directives
    assert [finding.rule for finding in made.findings] == ["gpus-per-node-instead"]


def test_spare_nodes_are_asked_for_too() -> None:
    made = schedulers.get("slurm").head(replace(request(PERLMUTTER, SLURM), nodes=3))
    assert ("--nodes=3",) in made.directives


def test_a_user_may_have_less_than_the_sites_whole_nodes() -> None:
    assert ("--exclusive",) not in schedulers.get("slurm").head(request(PLAIN, SLURM, exclusive=False)).directives
    assert ("-x",) not in schedulers.get("lsf").head(request(PLAIN, LSF, exclusive=False)).directives


def test_conditions_of_lsf_are_joined_as_its_select_string_has_them() -> None:
    def selected(constraint: str, disk: str) -> str:
        asked = replace(request(PLAIN, LSF, constraint=constraint), disk_constraint=disk)
        words = [words for words in schedulers.get("lsf").head(asked).directives if words[0] == "-R"]
        return words[0][1].split(" span")[0]

    assert selected("ib", "ssd") == "select[ib && ssd]"
    assert selected("ib || eth", "ssd") == "select[(ib || eth) && ssd]"
    assert selected("ib || eth", "") == "select[ib || eth]"


def test_an_unknown_scheduler_names_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        schedulers.get("sge")
    assert "slurm, lsf, pbs, flux" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"scheduler_args": ("--mem-per-cpu=4G",), "exclusive": True}, ["--mem-per-cpu=4G"]),
        ({"scheduler_args": ("--comment=x --mem-per-gpu 4G",), "exclusive": True}, ["--mem-per-gpu"]),
        ({"scheduler_args": ("--mem=9G",), "exclusive": False}, ["--mem=9G"]),
        ({"scheduler_args": ("--mem-bind=local",), "exclusive": True}, ["--mem=0", "--mem-bind=local"]),
        ({"scheduler_args": (), "exclusive": True}, ["--mem=0"]),
    ],
)
def test_sbatch_refuses_two_requests_for_memory(options: dict[str, Any], wanted: list[str]) -> None:
    made = schedulers.get("slurm").head(request(PLAIN, SLURM, **options))
    assert [word for words in made.directives for word in words if word.startswith("--mem")] == wanted


@pytest.mark.parametrize(("scheduler", "dependency", "directive"), [
    (SLURM, "afterany:12", "--dependency=afterany:12"), (PBS, "afterany:12", "depend=afterany:12"),
    (LSF, "ended(12)", "ended(12)"), (FLUX, "afterany:12", "--dependency=afterany:12"),
])  # fmt: skip
def test_a_job_waits_for_the_end_of_another_one(scheduler: Scheduler, dependency: str, directive: str) -> None:
    """However that ends; the head takes what the scheduler itself gives."""
    batch = schedulers.get(scheduler.kind)
    assert batch.after_end.format(job="12") == dependency
    asked = request(PERLMUTTER, scheduler, dependency=dependency)
    assert directive in [word for words in batch.head(asked).directives for word in words]
