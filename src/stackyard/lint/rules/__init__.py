"""The rules of lint: a table of small functions. Importing this package fills the table."""

from stackyard.lint.rules import (
    address,
    flux,
    gpus,
    head,
    headoptions,
    jsrun,
    lsf,
    program,
    ranks,
    refused,
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
    "gpus",
    "head",
    "headoptions",
    "jsrun",
    "lsf",
    "program",
    "ranks",
    "refused",
    "rendezvous",
    "resources",
    "shape",
    "torch",
    "used",
    "waiting",
]
