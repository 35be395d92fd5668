"""The rules of lint: a table of small functions. Importing this package fills the table."""

from stackyard.lint.rules import (
    address,
    around,
    gpus,
    head,
    headoptions,
    program,
    ranks,
    refused,
    rendezvous,
    resources,
    shape,
    together,
    torch,
    used,
    values,
    waiting,
)
from stackyard.lint.rules.base import TABLE, Case, Hit, Rule
from stackyard.lint.rules.schedulers import flux, jsrun, lsf, pbs

__all__ = [
    "TABLE",
    "Case",
    "Hit",
    "Rule",
    "address",
    "around",
    "flux",
    "gpus",
    "head",
    "headoptions",
    "jsrun",
    "lsf",
    "pbs",
    "program",
    "ranks",
    "refused",
    "rendezvous",
    "resources",
    "shape",
    "together",
    "torch",
    "used",
    "values",
    "waiting",
]
