"""Known causes: each rule finds what its program really prints, and good output is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stackyard.launch.run.causes import explain, reference, rules

ROOT = Path(__file__).parents[2]
EXAMPLES: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(
    (ROOT / "tests/data/launch/causes.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["rule"])
def test_real_output_has_its_cause(example: dict[str, Any]) -> None:
    noise = ["epoch 3 step 120 loss 1.234", "saving checkpoint"]
    found = explain(
        tail=[*noise, *example.get("tail", "").splitlines()],
        code=example["code"], launcher_output=example.get("launcher", ""), facts=example.get("facts", {}),
    )  # fmt: skip
    assert found is not None
    assert found.rule == example["rule"]
    assert "{" not in found.cause + found.remedy


def test_every_rule_has_an_example() -> None:
    names = [rule.name for rule in rules()]
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted(example["rule"] for example in EXAMPLES)


@pytest.mark.parametrize(
    "lines",
    [
        ["Hello from rank 0 of 8", "Hello from rank 1 of 8"],
        ["ValueError: not enough values to unpack (expected 2, got 1)"],
        ["node1:12:34 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>", "NCCL INFO comm 0x7f init complete"],
        ["peak memory 31.2 GiB, out of 40", "no module was changed", "timeout set to 1800 s"],
        ["KeyError: 'loss'"],
        ["AssertionError: rank 3 of 8 has a different loss"],
        ["listening on port 29500", "address 10.0.0.1:29500"],
        ["torch.distributed.elastic: worker group stopped"],
        ['  File "train.py", line 9, in <module>', "ZeroDivisionError: division by zero"],
    ],
)  # fmt: skip
def test_other_output_has_no_cause(lines: list[str]) -> None:
    assert explain(tail=lines, code=1, launcher_output="", facts={"family": "slurm", "tasks": 8}) is None
    launcher = "srun: error: d1: task 0: Exited with exit code 1\nsrun: Terminating StepId=12.0"
    assert explain(tail=lines, code=1, launcher_output=launcher, facts={}) is None


def test_success_is_not_explained() -> None:
    for example in EXAMPLES:
        if "facts" not in example:
            tail = example.get("tail", "").splitlines()
            assert explain(tail=tail, code=0, launcher_output=example.get("launcher", ""), facts={}) is None


def test_a_group_names_the_thing() -> None:
    found = explain(tail=["ModuleNotFoundError: No module named 'horovod.torch'"], code=1, launcher_output="", facts={})
    assert found is not None
    assert "horovod.torch" in found.cause


@pytest.mark.parametrize("prefix", ["[rank1]: ", "[default0]:[rank0]: ", "[1,0]<stderr>:", "[1,0]<stderr>: ", "3: "])
def test_a_launcher_s_prefix_hides_no_cause(prefix: str) -> None:
    found = explain(tail=[f"{prefix}MemoryError"], code=1, launcher_output="", facts={})
    assert found is not None
    assert found.rule == "host-memory"


def test_a_time_limit_precedes_what_the_ranks_said_of_their_end() -> None:
    tail = ["ConnectionRefusedError: [Errno 111] Connection refused"]
    limit = "slurmstepd: error: *** STEP 12.0 ON d1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***"
    found = explain(tail=tail, code=143, launcher_output=limit, facts={})
    assert found is not None
    assert found.rule == "time-limit"


def test_dash_says_it_in_another_way() -> None:
    tail = ["/bin/sh: 1: exec: python3.99: not found"]
    found = explain(tail=tail, code=127, launcher_output="", facts={})
    assert found is not None
    assert found.cause == "python3.99 not found on the nodes"


def test_page_is_fresh() -> None:
    page = ROOT / "docs/reference/causes.md"
    assert page.read_text(encoding="utf-8") == reference(), "write causes.reference() to docs/reference/causes.md"
