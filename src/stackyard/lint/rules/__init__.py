"""The rules of lint: a table of small functions. Importing this package fills the table."""

from stackyard.lint.rules import (
    address,
    flux,
    head,
    headoptions,
    jsrun,
    lsf,
    program,
    ranks,
    rendezvous,
    resources,
    shape,
    torch,
    used,
    waiting,
)
from stackyard.lint.rules.base import TABLE, Case, Hit, Rule

__all__ = [
    "TABLE",
    "Case",
    "Hit",
    "Rule",
    "address",
    "flux",
    "head",
    "headoptions",
    "jsrun",
    "lsf",
    "program",
    "ranks",
    "rendezvous",
    "resources",
    "shape",
    "torch",
    "used",
    "waiting",
]
