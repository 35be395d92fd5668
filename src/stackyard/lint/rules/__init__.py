"""The rules of lint: a table of small functions. Importing this package fills the table."""

from stackyard.lint.rules import (
    address,
    amounts,
    around,
    gpus,
    placement,
    processes,
    program,
    ranks,
    rendezvous,
    resources,
    shape,
    shelltraps,
    torch,
    used,
    waiting,
)
from stackyard.lint.rules.base import TABLE, Case, Hit, Rule
from stackyard.lint.rules.heads import head, headoptions, refused, together, unset, values
from stackyard.lint.rules.schedulers import flux, jsrun, lsf, pbs

__all__ = [
    "TABLE",
    "Case",
    "Hit",
    "Rule",
    "address",
    "amounts",
    "around",
    "flux",
    "gpus",
    "head",
    "headoptions",
    "jsrun",
    "lsf",
    "pbs",
    "placement",
    "processes",
    "program",
    "ranks",
    "refused",
    "rendezvous",
    "resources",
    "shape",
    "shelltraps",
    "together",
    "torch",
    "unset",
    "used",
    "values",
    "waiting",
]
