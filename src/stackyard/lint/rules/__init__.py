"""The rules of lint: a table of small functions. Importing this package fills the table."""

from stackyard.lint.rules import (
    address,
    head,
    jsrun,
    lsf,
    program,
    ranks,
    rendezvous,
    resources,
    shape,
    torch,
    waiting,
)
from stackyard.lint.rules.base import TABLE, Case, Hit, Rule

__all__ = [
    "TABLE",
    "Case",
    "Hit",
    "Rule",
    "address",
    "head",
    "jsrun",
    "lsf",
    "program",
    "ranks",
    "rendezvous",
    "resources",
    "shape",
    "torch",
    "waiting",
]
