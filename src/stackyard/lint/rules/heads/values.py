"""Options that take one of a few values: a table for each scheduler, from its manual page.

Slurm: what sbatch of 22.05 takes, as measured. LSF: bsub(1) of 10.1, "Synopsis" of each option. PBS:
ecl_verify_values.c of OpenPBS and process_opt_* in Torque's qsub_functions.c; values of either one are accepted. Flux:
cli/base.py of flux-core. jsrun: its manual page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from stackyard.launch.request.options import Option
from stackyard.lint.rules.base import Case, Hit, is_template, rule
from stackyard.lint.rules.heads.head import read_by_scheduler

_YES_NO = (r"(?i:y|n|yes|no)", "y or n")
_COUNT = (r"\+?0*[1-9]\d*", "a whole number from 1")
_FLUX: Mapping[str, tuple[str, str]] = {
    "urgency": (r"default|hold|expedite|0*(?:[12]?\d|3[01])", "0 to 31, hold, default or expedite"),
    "flags": (r"(?:(?:debug|waitable|novalidate|signed)(?:,(?!$)|$))+", "debug, waitable or novalidate"),
}
_GRES = r"(?:gres[/:])?[A-Za-z_][\w.-]*(?:[:/][A-Za-z_][\w.-]*)*(?::\d+[KMGT]?)?(?:\([^)]*\))?"
_RANGE = r"\d+(?:-\d+(?::\d+)?)?"
_TASKS = ("ntasks", "cpus-per-task", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-core", "ntasks-per-gpu",
          "cpus-per-gpu", "mincpus")  # fmt: skip
_GPUS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
VALUES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "slurm": {
        **dict.fromkeys(_TASKS, (r"0*[1-9]\d*[kKmM]?|=.*", "a whole number from 1")),
        **dict.fromkeys(
            _GPUS, (r"(?:(?:[A-Za-z_][\w.-]*:)?\d+|[A-Za-z_][\w.-]*)(?:,[A-Za-z_][\w.-]*:\d+)*|=.*", "N or TYPE:N")
        ),
        "nodes": (r"\d+[kKmM]?(?:-\d+[kKmM]?)?|=.*", "N or MIN-MAX"),
        "gres": (rf"(?!gpus:){_GRES}(?:,{_GRES})*|=.*", "gpu:N or gpu:TYPE:N"),
        "array": (rf"{_RANGE}(?:,{_RANGE})*(?:%\d+)?|=.*", "FIRST-LAST, N,M or FIRST-LAST%MOST"),
        "exclusive": (r"(?i:user|mcs|exclusive|topo)|=.*", "user or mcs, or no value"),
        "open-mode": (r"a|append|t|truncate", "append or truncate"),
    },
    "lsf": {
        "core_isolation": (r"[0-5]", "0 to 5"),
        "n": (r"\d+(?:,\d+)?", "a number, or MIN,MAX"),
        "g": (r"\D.*", "the name of a group of jobs; for GPUs -gpu"),
        "csm": _YES_NO,
        "jsm": (r"(?i:y|n|d|yes|no)", "y, n or d"),
        "step_cgroup": _YES_NO,
        "nnodes": _COUNT,
        "smt": _COUNT,
    },
    "pbs": {
        "c": (
            r"[nscwu]|[cw]=\d+|(?:(?:[ncsu]|none|shutdown|periodic|enabled|interval|depth|dir)(?:\s*=[^,]*)?(?:,|$))+",
            "n, s, c, w, c=MINUTES or w=MINUTES",
        ),
        "j": (r"oe|eo|n", "oe, eo or n"),
        "J": (r"(\d+)-(?!\1(?:\D|$))\d+(?::\d+)?(?:%\d+)?", "FIRST-LAST, with at least two tasks"),
        "k": (r"[oed]*[oe][oed]*|d*n[nd]*", "n, or letters of o, e and d"),
        "m": (r"n|p|[abefj]+", "n, or letters of a, b and e"),
        "p": (r"\+?(?:\d{1,3}|10[01]\d|102[0-3])|-(?:\d{1,3}|10[01]\d|102[0-4])", "-1024 to 1023"),
        "r": (r"y|n", "y or n"),
        "R": (r"[oe]+", "letters of o and e"),
        "l.filesystems": (r"[^,]+", "names with colons between them"),
        "l.place": (
            r"(?:(?:free|pack|scatter|vscatter|excl|exclhost|shared|group=[^:]+)(?::(?!$)|$))+",
            "free, pack, scatter or vscatter, with excl, exclhost, shared or group=RESOURCE",
        ),
    },
    "flux": {
        **dict.fromkeys(("nodes", "nslots", "cores-per-slot"), _COUNT),
        "gpus-per-slot": (r"\+?\d+", "a whole number"),
        **_FLUX,
    },
    "flux run": _FLUX,
    "srun": {
        **dict.fromkeys(_TASKS, (r"0*[1-9]\d*[kKmM]?|=.*", "a whole number from 1")),
        "nodes": (r"\d+[kKmM]?(?:-\d+[kKmM]?)?|=.*", "N or MIN-MAX"),
    },
    "jsrun": {
        "bind": (r"none|rs|(?:proportional-)?packed(?::\S+)?", "none, rs or packed:CORES"),
        "launch_distribution": (r"packed|cyclic|plane(?::\d+)?", "packed, cyclic or plane:N"),
    },
}
"""By scheduler, or by launcher, the form of a value, and what it can be in words."""
_PROGRAMS = {"slurm": "sbatch", "lsf": "bsub", "pbs": "qsub", "flux": "flux batch"}


@rule(
    "option-value",
    "refused",
    why="The scheduler rejects a value that an option does not have",
    example="#PBS -j y",
    instead="#PBS -j oe",
)
def option_value(case: Case) -> Iterator[Hit]:
    """A value that the option of the head, of a flux run or of a jsrun does not have."""
    kind = case.script.scheduler
    for directive in read_by_scheduler(case) if kind in _PROGRAMS else ():
        for option in directive.options:
            for name, value in _given(kind, option):
                if form := _wrong(kind, name, value):
                    written = _dashes(kind, option) + (f" {name[2:]}=" if "." in name else " ")
                    text = f"{_PROGRAMS[kind]} does not take {written}{value}"
                    yield Hit(directive.line, text, f"use {form}")
    for launch in case.launches:
        rows = "flux run" if launch.kind == "flux" else launch.kind
        for option in launch.reading.options if rows in VALUES and not launch.doubtful else ():
            if form := _wrong(rows, option.name, option.value):
                yield Hit(launch.line, f"{rows} does not take {_dashes('', option)} {option.value}", f"use {form}")


def _wrong(rows: str, name: str, value: str) -> str:
    """The allowed values, if the value is not one of them; empty if unknown or not given."""
    form, pattern = VALUES[rows].get(name, (".*", ""))
    return pattern if value and not is_template(value) and "$" not in value and not re.fullmatch(form, value) else ""


def _given(kind: str, option: Option) -> Iterator[tuple[str, str]]:
    """The option and its value; in place of the ``-l`` of PBS its resources."""
    for item in re.split(r",(?=[\w.]+=)", option.value) if (kind, option.name) == ("pbs", "l") else ():
        name, _, value = item.partition("=")
        yield f"l.{name}", value
    yield option.name, option.value


def _dashes(kind: str, option: Option) -> str:
    return ("-" if kind in ("lsf", "pbs") or len(option.written) == 1 else "--") + option.written
