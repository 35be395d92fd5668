"""What a study is asked: formulas, variants, the order of its runs, and its file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stackyard.cli.jobs.intents import make_intent
from stackyard.cli.jobs.launch import command
from stackyard.core.errors import InputError
from stackyard.launch.api.jobs import Intent, made
from stackyard.study import request, schedule, variants
from stackyard.study.arguments import filled, names_in, sized
from stackyard.study.command import launch_words
from stackyard.study.request import StudyRequest, Variant, compared, load_study, remarks, study_text, varied
from stackyard.study.table import Row, table_text
from support.torchstack import EXAMPLES


def study(**values: object) -> StudyRequest:
    words = values.pop("program", ("train.py",))
    found: StudyRequest = made(StudyRequest, {"job": made(Intent, {"program": words}), **values})
    return found


@pytest.mark.parametrize(("word", "is_filled"), [
    ("{ranks}", "8"), ("{nodes}", "2"), ("--batch={ranks*16}", "--batch=128"), ("{1024//ranks}", "128"),
    ("{(ranks + 1) * 2 - 1}", "17"), ("{-nodes + 3}", "1"), ("{nodes}x{ranks}", "2x8"), ("{batch}", "64"),
    ('{"lr": 0.1}', '{"lr": 0.1}'), ("${HOME}", "${HOME}"), ("{}", "{}"), ("{3}", "{3}"), ("{ }", "{ }"),
    ("{a: b}", "{a: b}"), ("{a,b}", "{a,b}"),
])  # fmt: skip
def test_a_formula_in_a_word(word: str, is_filled: str) -> None:
    assert filled([word], {"nodes": 2, "ranks": 8}, {"batch": "64"}) == (is_filled,)


@pytest.mark.parametrize(("word", "why"), [
    ("{rank*2}", "rank is not known"), ("{ranks/2}", "/ gives fractions: write //"),
    ("{8//(nodes-2)}", "divides by zero"),
    ("{ranks**9}", "it is not a formula"), ("{ranks(2)}", "it is not a formula"),
    ("{ranks*999999999*999999999*9}", "the result is too large"),
])  # fmt: skip
def test_a_formula_that_cannot_be_calculated(word: str, why: str) -> None:
    with pytest.raises(InputError, match="cannot calculate") as error:
        filled([word], {"nodes": 2, "ranks": 8}, {})
    assert why in error.value.message and "nodes, ranks" in str(error.value.hint)


def test_names_and_sized_words_are_found() -> None:
    words = ["train.py", "--batch", "{ranks*16}", "--lr={lr}", "--n={nodes}"]
    assert names_in(words) == {"ranks": ["{ranks*16}"], "lr": ["{lr}"], "nodes": ["{nodes}"]}
    assert sized(words) == {"--batch": "{ranks*16}", "--n": "--n={nodes}"}


@pytest.mark.parametrize(("values", "why"), [
    ({"job": {"program": ["a.py"], "nodes": 2}}, "leave `nodes` out of `job`"),
    ({"job": {}}, "`job` has no program"),
    ({"nodes": (1, 1)}, "listed twice"), ({"nodes": ()}, "no number of nodes"),
    ({"pack": True, "vary": {"b": ("1", "2")}}, "leave `pack` out"), ({"allocations": 6}, "belongs to a comparison"),
    ({"variants": {"../x": {}, "b": {}}}, "cannot be the name of a variant"),
    ({"variants": {"=1+1": {}, "b": {}}}, "cannot be the name of a variant"),
    ({"nodes": tuple(range(1, 1000)), "repeat": 200}, "a study has at most"),
    ({"until_percent": 2, "vary": {"b": ("1", "2")}}, "belongs to sizes"),
])  # fmt: skip
def test_a_request_that_contradicts_itself(values: dict[str, object], why: str) -> None:
    with pytest.raises(InputError) as error:
        made(StudyRequest, {"job": {"program": ["a.py"]}, **values})
    assert why in error.value.message


def test_variants_of_a_command_line() -> None:
    found = compared(["pytorch/2.13", "img=./a.sif", "plain:./venv"])
    assert {name: (v.stack, Path(v.container).name, Path(v.plain).name) for name, v in found.items()} == {
        "pytorch-2.13": ("pytorch/2.13", "", ""), "img": ("", "a.sif", ""), "venv": ("", "", "venv"),
    }  # fmt: skip
    with pytest.raises(InputError, match="two variants are called a"):
        compared(["a", "a"])
    with pytest.raises(InputError, match="image=: nothing is named"):
        compared(["image="])
    assert varied(["batch=64,128"], ["t.py"]) == ({"batch": ("64", "128")}, ("t.py", "--batch", "{batch}"))
    assert varied(["lr=1,2"], ["t.py", "-l{lr}"])[1] == ("t.py", "-l{lr}")
    for wrong in ("batch", "batch=64,64", "batch=,", "nodes=1,2", "a-b=1,2"):
        with pytest.raises(InputError, match="--vary"):
            varied([wrong], ["t.py"])


def test_varied_values_make_variants_with_each_of_the_others() -> None:
    both = study(variants={"a": Variant(stack="s/1"), "b": Variant()}, vary={"n": ("1", "2")}, program=("t.py", "{n}"))
    assert list(both.all_variants) == ["a+n=1", "a+n=2", "b+n=1", "b+n=2"]
    intent = variants.intent_of(both, "a+n=2", 4, {})
    assert (intent.stack, intent.nodes, intent.program) == ("s/1", 4, ("t.py", "{n}"))
    assert filled(intent.program, {"nodes": 4, "ranks": 8}, both.all_variants["a+n=2"].arguments) == ("t.py", "2")
    assert list(study().all_variants) == ["job"]


def test_a_plain_environment_is_first_on_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    asked = study(variants={"mine": Variant(plain=str(tmp_path)), "other": Variant()})
    with pytest.raises(InputError, match="has no bin/python"):
        variants.intent_of(asked, "mine", 1, {"PATH": "/bin"})
    (tmp_path / "bin/python").touch()
    intent = variants.intent_of(asked, "mine", 1, {"PATH": "/bin"})
    assert intent.variables == {"PATH": f"{tmp_path}/bin:/bin", "VIRTUAL_ENV": str(tmp_path)}


def test_a_size_is_measured_in_jobs_of_its_own_and_a_comparison_in_pairs() -> None:
    sizes = list(schedule.planned(study(nodes=(2, 1), repeat=3), 1))
    assert [job.id for job in sizes] == [f"n000{n}-a0{a}" for n in (1, 2) for a in (1, 2, 3)]
    assert [(p.repeat, p.warmup, p.order) for p in sizes[1].points] == [(0, True, 1), (2, False, 2)]
    (packed,) = schedule.planned(study(repeat=3, pack=True), 1)
    assert [p.id for p in packed.points] == ["n0001-job-a01-w01", *(f"n0001-job-a01-r0{r}" for r in (1, 2, 3))]
    asked = study(vary={"b": ("1", "2", "3")}, repeat=6, allocations=2)
    pairs = list(schedule.planned(asked, 7))
    assert len(pairs) == 2 and pairs == list(schedule.planned(asked, 7)) != list(schedule.planned(asked, 8))
    for job in pairs:
        assert [p.warmup for p in job.points] == [True] * 3 + [False] * 18
        assert Counter((p.repeat, p.variant) for p in job.points[3:]) == {
            (r, f"b={b}"): 1 for r in range(1, 7) for b in (1, 2, 3)
        }
        assert schedule.JobPlan.from_json(job.to_json()) == job
    assert len({p.id for job in pairs for p in job.points}) == 2 * 21


def test_the_kind_of_scaling_and_what_is_odd_about_it() -> None:
    grows, shared = ("t.py", "--batch", "{ranks*16}"), ("t.py", "--batch", "{1024//ranks}")
    assert [study(program=p).scaling for p in (("t.py",), grows, shared)] == ["strong", "weak", "strong"]
    assert study(kind="throughput", program=grows).scaling == "throughput"
    assert not remarks(study(nodes=(1, 2), kind="weak", program=grows))
    assert "no argument depends on" in remarks(study(nodes=(1, 2), kind="weak"))[0]
    (strong,) = remarks(study(nodes=(1, 2), kind="strong", program=grows))
    assert "--batch {ranks*16} grows" in strong
    assert not remarks(study(nodes=(1, 2), kind="strong", program=shared))


def test_too_few_pairs_are_said_before_the_work() -> None:
    assert remarks(study(vary={"b": ("1", "2")}, nodes=(1, 2, 4), repeat=6)) == [
        "6 pairs: no verdict, 3 comparisons need 7 (--repeat 7)"
    ]
    assert not remarks(study(vary={"b": ("1", "2")}, nodes=(1, 2, 4), repeat=7))
    (few,) = remarks(study(vary={"b": ("1", "2", "3")}, nodes=(1, 2, 4), repeat=2, allocations=6))
    assert few == "6 allocations: no verdict, 6 comparisons need 8 (--allocations 8)"
    assert not remarks(study(nodes=(1,), repeat=1))


def test_a_study_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    asked = study(
        nodes=(1, 2, 4), kind="weak", repeat=8, vary={"b": ("1", "2")}, program=("t.py", "{b}", "{ranks}"),
        variants={"a": Variant(stack="s/1", variables={"X": "1"}), "b": Variant(container="/i.sif")},
        measure=({"name": "v", "pattern": "v=(.*)", "unit": "s", "better": "lower"},),
    )  # fmt: skip
    file = tmp_path / "study.yaml"
    file.write_text(study_text(asked))
    assert load_study(file) == asked
    file.write_text("format: 1\njob: {program: [t.py]}\nrepeats: 3\nnodes: [0]\n")
    with pytest.raises(InputError) as error:
        load_study(file)
    assert "2 problems" in str(error.value) or "repeats" in str(error.value)


def test_secrets_of_the_job_are_not_in_the_file() -> None:
    asked = request.StudyRequest(job=made(Intent, {"program": ("t.py",), "variables": {"HF_TOKEN": "hf_abcdefghijk"}}))
    assert "hf_abc" not in study_text(asked) and "HF_TOKEN" in study_text(asked)


def test_the_command_that_repeats_a_run() -> None:
    values = {"program": ("t.py", "--x", "1"), "nodes": 2, "ranks_per_node": 4, "stack": "s/1", "variables": {"A": "b"},
              "launcher_args": ("--x",), "mpi_abort": False, "check": True, "hang_min": 1.5}  # fmt: skip
    asked = made(Intent, values)
    words = launch_words(asked)
    assert words[:2] == ("stackyard", "launch")
    with command.make_context("launch", list(words[2:])) as context:
        typed = dict(context.params)
        assert make_intent(typed, typed.pop("program")) == asked


def test_a_table_has_all_digits() -> None:
    rows = [
        Row(1, 2, "a", 1, 1, 2, False, "images/s", 0.1 + 0.2, "1/s", "n1 n2", "runs/1", "done"),
        Row(1, 0, "a", 0, 1, 1, True, "", None, "", "", "", "missing"),
    ]
    assert table_text(rows) == (
        "nodes,ranks,variant,repeat,allocation,order,warmup,metric,value,unit,hosts,run,state\n"
        "1,2,a,1,1,2,0,images/s,0.30000000000000004,1/s,n1 n2,runs/1,done\n"
        "1,0,a,0,1,1,1,,,,,,missing\n"
    )
    assert [row.counts for row in rows] == [True, False]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/study.yaml")), ids=lambda file: file.parent.name)
def test_the_studies_of_the_examples_are_read(file: Path) -> None:
    assert load_study(file).name == "resnet"
