"""Every renderer has a rule for every operation: one that is added without a rule fails here."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from stackyard.core import posix
from stackyard.core.change import (
    OPERATIONS,
    Alias,
    Append,
    Complete,
    Default,
    EnvironmentChange,
    Flags,
    Function,
    Join,
    Notice,
    OnUnload,
    Operation,
    Prepend,
    Prompt,
    Rules,
    SaveValue,
    Set,
    SetRestorable,
    UserPath,
    left_out,
    rendered,
)
from stackyard.expose.modulefiles import lua, tcl
from stackyard.expose.modulefiles.rendering import ordered

RENDERERS = {"lua": lua.RULES, "tcl": tcl.RULES, "sh": posix.RULES}
SAMPLES: list[Operation] = [
    Prepend("PATH", "/p/bin"),
    Append("G", "/p/lib"),
    Join("H", "a b", "c", ";", "d"),
    Set("A", "1"),
    SetRestorable("B", "2"),
    Default("C", "3"),
    SaveValue("D", "HOME"),
    Flags("E", "-x"),
    UserPath("F", ("SCRATCH",), "x", ".x"),
    Function("f", {"sh": ":"}),
    Alias("a", "b"),
    OnUnload({"sh": ":"}),
    Prompt("p"),
    Complete("c", "/p/share"),
    Notice("text"),
]


def test_there_is_a_sample_of_every_operation() -> None:
    assert {type(operation) for operation in SAMPLES} == set(OPERATIONS) == set(get_args(Operation))


@pytest.mark.parametrize("rules", RENDERERS.values(), ids=RENDERERS)
def test_a_renderer_has_a_rule_for_every_operation_and_no_other(rules: Rules) -> None:
    assert set(rules) == set(OPERATIONS)


@pytest.mark.parametrize("rules", RENDERERS.values(), ids=RENDERERS)
def test_a_rule_takes_the_operation_that_it_is_for(rules: Rules) -> None:
    for cls, rule in rules.items():
        (taken, _) = get_type_hints(rule).values()
        assert rule is left_out or taken is cls


@pytest.mark.parametrize("operation", SAMPLES, ids=lambda operation: operation.op)
def test_a_child_process_gets_every_operation(operation: Operation) -> None:
    found = EnvironmentChange((operation,)).apply({"HOME": "/h"})
    variable = getattr(operation, "variable", None)
    assert found.keys() == {"HOME"} | ({variable} if variable else set())
    assert EnvironmentChange.from_json(EnvironmentChange((operation,)).to_json()).operations == (operation,)


def test_what_an_unload_does_is_rendered_first_and_the_rest_keeps_its_order() -> None:
    kinds = [operation.op for operation in ordered(EnvironmentChange(tuple(SAMPLES)))]
    assert kinds == ["on_unload", *(o.op for o in SAMPLES if o.op != "on_unload")]


def test_an_operation_without_a_rule_is_named() -> None:
    with pytest.raises(KeyError, match="Flags"):
        rendered(SAMPLES, {cls: rule for cls, rule in lua.RULES.items() if cls is not Flags})
