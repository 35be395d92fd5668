"""The YAML reader: values, texts, comments and places."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.errors import InputError, ManyErrors, Where
from stackyard.inputs.reading.yamlfile import parse_yaml, raise_problems, read_text

TEXT = """\
python: 3.10   # newest
list: [1, 'two' , x]  # whole
"quoted":  # [win]
  - a # [linux]
  - "b#c"   #d
  - http://h/#no
block: |  # here
  text
empty:
base: &base {deep: {er: 1}}
merged:
  <<: *base
  own: 2
"""


def test_an_anchor_may_be_used_again(recwarn: pytest.WarningsRecorder) -> None:
    """YAML 1.2, 3.2.2.2: an alias means the latest anchor before it."""
    root = parse_yaml("a: &x 1\nb: *x\nc: &x 2\nd: *x\n", "f.yml").value
    assert root == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert not recwarn.list


@pytest.fixture
def document():
    return parse_yaml(TEXT, "f.yml")


def test_values_and_texts(document) -> None:
    assert document.value["python"] == 3.1
    assert document.at("python").text == "3.10"
    assert document.value["list"] == [1, "two", "x"]
    assert document.value["merged"] == {"own": 2, "deep": {"er": 1}}
    assert document.at("empty").is_null
    assert document.at("list", 1).quoted and not document.at("list", 2).quoted


def test_places(document) -> None:
    assert document.where("quoted", 1) == Where("f.yml", 5, 5)
    assert document.key_where("quoted") == Where("f.yml", 3, 1)
    assert document.where("empty") == Where("f.yml", 9, 1)
    assert document.where("merged", "deep", "er") == Where("f.yml", 10, 25)
    assert document.where("quoted", 7, "x") == document.where("quoted"), "the nearest value that is there"
    assert document.key_where("nowhere") == document.where()
    assert document.at("list", 3) is None


def test_comments_belong_to_their_line(document) -> None:
    comments = {
        ("python",): "newest",
        ("list",): "whole",
        ("list", 2): "",
        ("quoted",): "[win]",
        ("quoted", 0): "[linux]",
        ("quoted", 1): "d",
        ("quoted", 2): "",
        ("block",): "here",
    }
    assert {path: document.at(*path).comment for path in comments} == comments


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: &a [*a]\n", "1:4", "refers to the value that contains it"),
        ("a: *b\n", "1:4", "undefined alias"),
        ("a: \x01\n", "1", "not allowed"),
        ("a: 1\nb:\n  a: 2\n  a: 3\n", "4:3", "duplicate key"),
        ("<<: 1\n", "1:5", "mapping"),
        ("a: !!int x\n", "1:4", "not a valid int"),
    ],
)
def test_problems(text: str, place: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "f.yml")
    assert str(caught.value.where) == f"f.yml:{place}"
    assert message in caught.value.message
    assert caught.value.hint


def test_yaml_1_2_words_stay_words_unless_the_file_says_1_1() -> None:
    assert parse_yaml("a: yes\nb: on\nc: true\nd: 2020-01-01\ne: 012\n", "f").value == {
        **{"a": "yes", "b": "on", "c": True},
        **{"d": "2020-01-01", "e": 12},
    }
    assert parse_yaml("%YAML 1.1\n---\na: yes\n", "f").value == {"a": True}


def test_raising_none_one_or_many() -> None:
    first = InputError("a", where=Where("f", 2))
    second = InputError("b", where=Where("f", 1))
    raise_problems([])
    with pytest.raises(InputError, match="a"):
        raise_problems([first])
    with pytest.raises(ManyErrors) as caught:
        raise_problems([first, second])
    assert caught.value.problems == (second, first)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\n\x00\n")
    with pytest.raises(InputError, match="NUL") as caught:
        read_text(path)
    assert caught.value.where == Where(str(path), 2)
