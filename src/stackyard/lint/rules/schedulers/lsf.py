"""Rules on LSF's head: easy and expert mode, resource strings, ddlrun."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.rules.base import Case, Hit, is_template, rule
from stackyard.lint.rules.heads.head import read_by_scheduler


@rule(
    "nnodes-with-csm",
    "refused",
    why="Expert mode (-csm y) reads the whole request from -n and -R; -nnodes belongs to easy mode",
    example="#BSUB -nnodes 2\n#BSUB -csm y",
    instead="#BSUB -csm y\n#BSUB -n 85\n#BSUB -R ...",
)
def nnodes_with_csm(case: Case) -> Iterator[Hit]:
    """-nnodes, -ln_slots, -ln_mem or -cn_cu combined with -csm y."""
    values, request = case.script.request.values, case.script.request
    if case.script.scheduler != "lsf" or values.get("csm", "").lower() not in ("y", "yes"):
        return
    for name in ("nnodes", "ln_slots", "ln_mem", "cn_cu"):
        if name in values:
            yield Hit(request.lines[name], f"-{name} cannot be combined with -csm y (line {request.lines['csm']})",
                      "remove -csm y (easy mode), or write -n and -R for expert mode")  # fmt: skip


@rule(
    "slots-with-nnodes",
    why="In easy mode -nnodes is the request; -n with a number of slots contradicts it",
    example="#BSUB -nnodes 2\n#BSUB -n 84",
    instead="#BSUB -nnodes 2",
)
def slots_with_nnodes(case: Case) -> Iterator[Hit]:
    """-n combined with -nnodes."""
    request = case.script.request
    if case.script.scheduler == "lsf" and {"n", "nnodes"} <= request.values.keys():
        yield Hit(request.lines["n"], f"-n {request.values['n']} is combined with -nnodes {request.values['nnodes']}",
                  f"#BSUB -nnodes {request.values['nnodes']}   (without -n)")  # fmt: skip


@rule(
    "expert-slots",
    "refused",
    why="-R reserves 1 slot on the launch node and N x S on the compute nodes: -n must be N x S + 1",
    example='#BSUB -csm y\n#BSUB -n 84\n#BSUB -R "1*{..}+84*{..span[ptile=42]..}"',
    instead="#BSUB -n 85",
)
def expert_slots(case: Case) -> Iterator[Hit]:
    """Expert mode where -n is not the sum of the slots in -R, or where the slots do not fill whole nodes."""
    request = case.script.request
    counts = [int(text) for text in re.findall(r"(\d+)\s*\*\s*\{", request.values.get("R", ""))]
    slots = request.values.get("n", "")
    if case.script.scheduler != "lsf" or request.values.get("csm", "").lower() not in ("y", "yes") or len(counts) < 2:
        return
    if slots.isdecimal() and int(slots) != sum(counts):
        yield Hit(request.lines["n"],
                  f"-n is {slots}, but the terms of -R add up to {' + '.join(map(str, counts))} = {sum(counts)}",
                  f"#BSUB -n {sum(counts)}")  # fmt: skip
    tile = re.search(r"ptile\s*=\s*(\d+)", request.values["R"])
    if tile and int(tile[1]) and counts[-1] % int(tile[1]):
        tiles = -(-counts[-1] // int(tile[1]))
        yield Hit(request.lines["R"], f"{counts[-1]} slots are not a multiple of ptile={tile[1]}",
                  f"{tiles * int(tile[1])}*{{...}} and -n {tiles * int(tile[1]) + 1}")  # fmt: skip


@rule(
    "resource-string",
    "refused",
    why="LSF rejects a resource requirement that it cannot parse",
    example='#BSUB -R "span[hosts=1]]"',
    instead='#BSUB -R "span[hosts=1]"',
)
def resource_string(case: Case) -> Iterator[Hit]:
    """Unbalanced brackets or an unclosed quote in an -R string."""
    for directive in read_by_scheduler(case) if case.script.scheduler == "lsf" else ():
        for option in directive.options:
            if option.name != "R" or is_template(option.value.replace("{", "")):
                continue
            mark = option.value[:1]
            if mark in ("'", '"'):  # which the words of a directive keep only where nothing closes it
                yield Hit(directive.line, f"the {mark} of -R is not closed", '#BSUB -R "span[ptile=N]"')
                continue
            pairs = [("[", "]"), ("{", "}"), ("(", ")")]
            odd = next((pair for pair in pairs if option.value.count(pair[0]) != option.value.count(pair[1])), None)
            if odd:
                text = f"unbalanced {odd[0]} and {odd[1]} in {option.value!r}"
                yield Hit(directive.line, text, '#BSUB -R "span[ptile=N]"')


@rule(
    "pbs-select-with-nodes",
    "refused",
    why="PBS rejects a job that mixes the old -l nodes= with -l select=",
    example="#PBS -l select=2:ncpus=8\n#PBS -l nodes=2:ppn=8",
    instead="#PBS -l select=2:ncpus=8",
)
def pbs_select_with_nodes(case: Case) -> Iterator[Hit]:
    """-l nodes= combined with -l select=."""
    request = case.script.request
    if case.script.scheduler == "pbs" and {"l.select", "l.nodes"} <= request.values.keys():
        yield Hit(request.lines["l.nodes"],
                  f"-l nodes= is combined with -l select= (line {request.lines['l.select']})",
                  f"#PBS -l select={request.values['l.select']}")  # fmt: skip


@rule(
    "ddlrun-gone",
    why="ddlrun was part of IBM WML CE; Open-CE does not include it, and the centres recommend jsrun",
    example="ddlrun python train.py",
    instead="jsrun -r1 -g6 -a6 -c42 -bpacked:7 python train.py",
)
def ddlrun_gone(case: Case) -> Iterator[Hit]:
    """ddlrun, which no longer exists."""
    for launch in case.launches:
        if launch.word.rsplit("/", 1)[-1] == "ddlrun":
            yield Hit(launch.line, "ddlrun no longer exists", "jsrun -r1 -g6 -a6 -c42 -bpacked:7 ...")


@rule(
    "flux-mini",
    "note",
    why="`flux mini run` became `flux run` in flux-core 0.48; newer versions do not have it",
    example="flux mini run -N2 ./a.out",
    instead="flux run -N2 ./a.out",
)
def flux_mini(case: Case) -> Iterator[Hit]:
    """The old ``flux mini`` commands."""
    for launch in case.launches:
        if launch.kind == "flux" and launch.words[1:2] == ("mini",):
            yield Hit(
                launch.line, "flux mini was removed", f"flux {launch.words[2] if len(launch.words) > 2 else 'run'} ..."
            )
