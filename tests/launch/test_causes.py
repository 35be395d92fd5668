"""Known causes: each rule finds what its program really prints, and good output is left alone."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stackyard.core.errors import InputError, ManyErrors
from stackyard.launch.run import seen
from stackyard.launch.run.causes.table import FACTS, explain, reference, rules, site_rules
from support.cli import stackyard

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


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [500]>)", "tracker-network"),
        ("wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)", "tracker-login"),
        ("wandb: ERROR Error while calling W&B API: user is not logged in (<Response [401]>)", "tracker-login"),
        ("RuntimeError: no sample left; the API key of this notebook was read", None),
    ],
)
def test_a_server_that_is_late_is_no_missing_login(line: str, rule: str | None) -> None:
    found = explain(tail=[line], code=1, launcher_output="", facts={})
    assert (found and found.rule) == rule


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
        ["sqlite3.OperationalError: no such table: trials"],
        ["ValueError: Invalid feature names: a, b"],
        ["nvlink warning : Skipping incompatible 'a.o'", "KeyError: 'loss'"],
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


# ------------------------------------------------------------------------------------------------ those of a site

OWN = """
- name: licence-server
  patterns: ['no licence for (?P<name>[a-z]+)', 'MemoryError']
  cause: the licence server has no licence for {name} left
  remedy: see https://help.site.example/licences
- name: big-job
  codes: [7]
  when: {nodes: ">= 2", tasks: 8, container: true}
  cause: a container on several nodes
  remedy: ask us
  source: our ticket 12
"""


def own(directory: Path, text: str = OWN) -> str:
    file = directory / "causes.yaml"
    file.write_text(text)
    return str(file)


def test_the_rules_of_a_site_are_tried_before_the_others(tmp_path: Path) -> None:
    found = site_rules([own(tmp_path)])
    assert [rule.name for rule in found] == ["licence-server", "big-job"]
    cause = explain(tail=["MemoryError"], code=1, launcher_output="", facts={}, first=found)
    assert cause is not None and cause.rule == "licence-server"
    cause = explain(tail=["no licence for abaqus"], code=1, launcher_output="", facts={}, first=found)
    assert cause is not None and cause.cause == "the licence server has no licence for abaqus left"
    facts = {"nodes": 3, "tasks": 8, "container": True}
    cause = explain(tail=["x"], code=7, launcher_output="", facts=facts, first=found)
    assert cause is not None and cause.rule == "big-job"
    for other in ({"tasks": 9}, {"nodes": 1}, {"container": False}):
        assert explain(tail=["x"], code=7, launcher_output="", facts=facts | other, first=found) is None
    assert site_rules([]) == ()


def test_mistakes_in_the_rules_of_a_site_have_their_places(tmp_path: Path) -> None:
    text = (
        "- {name: a, patterns: ['('], cause: c, remedy: r}\n- {name: b, cause: c, remedy: r}\n- {name: c, code: [1]}\n"
    )
    with pytest.raises(ManyErrors) as caught:
        site_rules([own(tmp_path, text)])
    told = [str(each).removeprefix(f"{tmp_path}/causes.yaml:") for each in caught.value.problems]
    assert told[0].startswith("1:24: causes.0.patterns.0: '(' is not a regular expression: missing )")
    assert told[1].startswith("2:3: causes.1: a cause must have one of patterns, codes and when")
    assert "3:13: unknown key 'code' in causes.2" in told
    with pytest.raises(InputError) as one:
        site_rules([own(tmp_path, "- {name: a, when: {node: 2}, cause: c, remedy: r}\n")])
    assert str(one.value) == f"{tmp_path}/causes.yaml:1:20: unknown key 'node' in causes.0.when"
    assert "nodes" in (one.value.hint or "")
    with pytest.raises(InputError, match="a file of causes must be a list"):
        site_rules([own(tmp_path, "causes: []\n")])
    assert site_rules([own(tmp_path, "# none yet\n")]) == ()


def test_the_facts_are_those_that_are_gathered() -> None:
    (gathered,) = [node for node in ast.walk(ast.parse(inspect.getsource(seen._facts))) if isinstance(node, ast.Dict)]
    assert {key.value for key in gathered.keys if isinstance(key, ast.Constant)} == FACTS
    assert {name for rule in rules() for name in rule.when} <= FACTS


SITE = "name: laptop\nscheduler: {kind: none}\nnodes: {here: {cores: 2, sockets: 1}}\ncauses: [causes.yaml]\n"


@pytest.mark.parametrize("is_right", [True, False])
def test_a_launch_reports_the_cause_of_its_site(tmp_path: Path, is_right: bool) -> None:
    """A mistake in the file is told, and the program's own rules are tried nevertheless."""
    (tmp_path / "site.yaml").write_text(SITE)
    own(tmp_path, OWN if is_right else OWN.replace("codes: [7]", "codes: [seven]"))
    words = ("--site", "site.yaml", "--yard", "yard", "launch", "sh", "-c", "echo MemoryError >&2; exit 1")
    findings = stackyard(*words[:4], "explain", "--json", "true", cwd=tmp_path).value["findings"]
    assert [each["where"]["line"] for each in findings if each["rule"] == "causes"] == ([] if is_right else [7])
    shown = stackyard(*words[:4], "explain", "true", cwd=tmp_path).out
    assert ("causes.yaml:7:11" in "".join(shown.split())) is not is_right  # however its lines are broken
    told = stackyard(*words, expect=1, cwd=tmp_path).err
    if is_right:
        assert "the licence server has no licence for" in told and "https://help.site.example/licences" in told
    else:
        assert "the site's causes of failures are not tried: causes.yaml:7:11: causes.1.codes.0" in told
        assert next(rule.cause for rule in rules() if rule.name == "host-memory") in told.replace("\n", " ")
