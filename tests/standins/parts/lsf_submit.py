"""bsub of LSF, with CSM's easy and expert mode.

IBM   https://www.ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bsub.1.html (one page per option below it)
CSM   the pages of -csm, -nnodes, -cn_cu, -ln_slots, -ln_mem, -cn_mem, -alloc_flags there: what excludes what
OLCF  https://docs.olcf.ornl.gov/systems/summit_user_guide.html: easy and expert mode, project and wall time required
LAVA  openlava's lsb.sub.c (parseLine): how directives are split into words
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from . import jobs
from .grammar import Given, Refused, Style, parse, table
from .machine import Machine, load

MINUTES = r"([0-9]+:)?[0-9]+(/\S+)?"
OPTIONS = table(
    rf"""
    -P           | some                                | IBM
    -W           | {MINUTES}                           | IBM
    -We          | {MINUTES}                           | IBM
    -q           | some                                | IBM
    -J           | some                                | IBM
    -o           | some                                | IBM
    -oo          | some                                | IBM
    -e           | some                                | IBM
    -eo          | some                                | IBM
    -i           | some                                | IBM
    -n           | [0-9]+(,[0-9]+)?                    | IBM
    -R           | some                                | IBM | many
    -m           | some                                | IBM
    -M           | [0-9.]+[kKmMgGtT]?[bB]?             | IBM
    -gpu         | some                                | IBM
    -x           | -                                   | IBM
    -w           | some                                | IBM
    -U           | some                                | IBM
    -N           | -                                   | IBM
    -Ne          | -                                   | IBM
    -B           | -                                   | IBM
    -u           | some                                | IBM
    -r           | -                                   | IBM
    -rn          | -                                   | IBM
    -wa          | [A-Z0-9]+                           | IBM
    -wt          | {MINUTES}                           | IBM
    -H           | -                                   | IBM
    -K           | -                                   | IBM
    -I           | -                                   | IBM
    -Is          | -                                   | IBM
    -Ip          | -                                   | IBM
    -XF          | -                                   | IBM
    -b           | some                                | IBM
    -cwd         | some                                | IBM
    -env         | some                                | IBM
    -G           | some                                | IBM
    -g           | some                                | IBM
    -L           | some                                | IBM
    -app         | some                                | IBM
    -sla         | some                                | IBM
    -sp          | [0-9]+                              | IBM
    -Q           | some                                | IBM
    -E           | some                                | IBM
    -Ep          | some                                | IBM
    -network     | some                                | IBM
    -hostfile    | some                                | IBM
    -freq        | some                                | IBM
    -nnodes      | 0*[1-9][0-9]*                       | CSM
    -csm         | [yYnN]                              | CSM
    -cn_cu       | some                                | CSM
    -cn_mem      | [0-9]+                              | CSM
    -ln_slots    | [0-9]+                              | CSM
    -ln_mem      | [0-9]+                              | CSM
    -alloc_flags | some                                | CSM
    -core_isolation | [0-9]+                           | CSM
    -smt         | [0-9]+                              | CSM
    -jsm         | y|n|d                               | CSM
    -step_cgroup | y|n                                 | CSM
    -stage       | some                                | CSM
    """
)
STYLE = Style(
    "bsub", attached=True, equals=False, code=255, unknown="{word}: Illegal option. Job not submitted.",
    missing="{word}: Option requires an argument. Job not submitted.",
    invalid="{value}: Illegal value of {word}. Job not submitted.",
)  # fmt: skip
FLAGS = r"(?i)smt[124]|gpumps|gpudefault|nvme|maximizegpfs|spectral|cpublink|atsdisable|autonumaoff|hugepages=\d+"
EASY_ONLY = ("nnodes", "cn_cu", "ln_slots", "ln_mem")


def bsub(words: list[str]) -> int:
    """Submit a job."""
    machine = load()
    typed = parse(words, OPTIONS, STYLE)
    text = _script(typed)
    given = typed.under(parse(_directives(text), OPTIONS, STYLE))
    nodes, facts = _resources(given, machine)
    minutes = _minutes(given.get("W")) if "W" in given else 0.0
    name, indices = _name(given)
    job = jobs.Job(
        0, "lsf", name, _queue(given, machine), nodes, "", given.get("oo") or given.get("o", "%J.out"), os.getcwd(),
        error=given.get("eo") or given.get("e"), append="oo" not in given, minutes=minutes,
        signal=given.get("wa"), signal_s=60 * _minutes(given.get("wt")) if "wt" in given else 0,
        requeue="r" in given, after=_after(given), held="H" in given, facts={**facts, "signals": ["SIGINT", "SIGTERM"]},
    )  # fmt: skip
    first = jobs.submit(replace(job, index=indices[0] if indices else None), text)
    for index in indices[1:]:
        jobs.submit(replace(job, index=index, array=first.number), text)
    shown = f"queue <{job.queue}>" if "q" in given else f"default queue <{job.queue}>"
    print(f"Job <{first.number}> is submitted to {shown}.")
    return 0


def _script(typed: Given) -> str:
    if typed.rest:
        path = Path(typed.rest[0])
        if path.is_file():
            return path.read_text(encoding="utf-8")
        return "#!/bin/sh\n" + " ".join(typed.rest) + "\n"
    text = sys.stdin.read()
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        raise Refused("No command is specified in the script file. Job not submitted.", 255)
    return text


def _directives(text: str) -> list[str]:
    """Words of #BSUB lines: blanks end a word, the quote that comes first encloses, # ends the line; no shell."""
    words: list[str] = []
    for line in text.replace("\\\n", "").splitlines():
        match = re.match(r"\s*#\s*BSUB\s*(.*)", line)
        if match is None:
            continue
        rest = match[1]
        if not rest.startswith("-"):
            break
        while rest and not rest.startswith("#"):
            quote = min((q for q in "\"'" if q in rest), key=rest.index, default="")
            pattern = rf"(?:[^\s{quote}]|{quote}[^{quote}]*{quote})+" if quote else r"\S+"
            found = re.match(pattern, rest)
            if found is None:
                raise Refused(f"{rest}: Bad quoting. Job not submitted.", 255)
            words.append(found[0].replace(quote, "") if quote else found[0])
            rest = rest[found.end() :].lstrip()
    return words


def _minutes(text: str) -> float:
    hours, _, minutes = text.split("/", maxsplit=1)[0].rpartition(":")
    return int(hours or 0) * 60 + int(minutes)


def _queue(given: Given, machine: Machine) -> str:
    queue = given.get("q", machine.queues[0])
    for name in queue.split():
        if name not in machine.queues:
            raise Refused(f"{name}: No such queue. Job not submitted.", 255)
    return queue.split()[0]


def _name(given: Given) -> tuple[str, list[int]]:
    name = given.get("J", "NONAME")
    match = re.fullmatch(r"(.*?)(?:\[([^\]]*)\](?:%(\d+))?)?", name)
    assert match is not None
    if ("[" in match[1] or "]" in match[1]) or (match[2] is not None and not match[1]):
        raise Refused(f"{name}: Bad job array name. Job not submitted.", 255)
    try:
        found = jobs.indices(match[2]) if match[2] is not None else []
    except ValueError as error:
        raise Refused(f"{name}: Bad job array index list. Job not submitted.", 255) from error
    if 0 in found:
        raise Refused(f"{name}: Array index out of range. Job not submitted.", 255)
    return match[1], found


def _after(given: Given) -> tuple[tuple[str, int], ...]:
    kinds = {"done": "done", "ended": "ended", "exit": "failed", "started": "started"}
    found = []
    for term in re.split(r"\s*&&\s*", given.get("w")) if "w" in given else []:
        match = re.fullmatch(r"(?:(done|ended|exit|started)\(\s*\"?(\d+)\"?\s*\)|(\d+))", term.strip())
        if match is None:
            raise Refused(f"{given.get('w')}: Dependency condition syntax error. Job not submitted.", 255)
        number = int(match[2] or match[3])
        if jobs.read(number) is None:
            raise Refused(f"{number}: Job not found. Job not submitted.", 255)
        found.append((kinds[match[1] or "done"], number))
    return tuple(found)


def _resources(given: Given, machine: Machine) -> tuple[int, dict[str, object]]:
    smt = machine.smt
    for flag in given.get("alloc_flags").split():
        if not re.fullmatch(FLAGS, flag):
            raise Refused(f"{flag}: Unknown alloc_flags. Job not submitted.", 255)
        smt = int(flag[3:]) if flag.lower().startswith("smt") else smt
    _pairs(given)
    if given.get("csm").lower() == "y":
        return _expert(given, machine, smt)
    if any(key in given for key in EASY_ONLY) or "alloc_flags" in given:
        return _easy(given, machine, smt)
    return _plain(given, machine)


def _pairs(given: Given) -> None:
    for one, other in (("o", "oo"), ("e", "eo"), ("r", "rn"), ("N", "Ne"), ("K", "I")):
        if one in given and other in given:
            raise Refused(f"-{one} and -{other} cannot be used together. Job not submitted.", 255)
    if ("wa" in given) != ("wt" in given):
        raise Refused("Job warning action and time must be specified together (-wa, -wt). Job not submitted.", 255)
    if "wa" in given and given.get("wa") not in ("USR1", "USR2", "URG", "INT", "TERM", "HUP", "CHKPNT"):
        raise Refused(f"{given.get('wa')}: Bad job warning action. Job not submitted.", 255)


def _expert(given: Given, machine: Machine, smt: int) -> tuple[int, dict[str, object]]:
    for key in EASY_ONLY:
        if key in given:
            raise Refused(f"Do not use the -{key} option with the -csm y option. Job not submitted.", 255)
    _required(given)
    if "R" not in given:
        raise Refused("-csm y needs a resource requirement string (-R). Job not submitted.", 255)
    terms = _terms(given.get("R"))
    if len(terms) != 2 or "LN" not in terms[0][1] or "CN" not in terms[1][1]:
        raise Refused(
            "Expert mode: a launch node (LN) and compute nodes (CN) must be asked for. Job not submitted.", 255
        )
    total = sum(count for count, _ in terms)
    if "n" in given and given.number("n", 0) != total:
        raise Refused(
            f"-n {given.get('n')} is not the number of slots in the resource string, {total}. Job not submitted.", 255
        )
    ptile = re.search(r"span\[ptile=(\d+)\]", terms[1][1])
    slots = int(ptile[1]) if ptile else len(machine.cores)
    if slots > len(machine.cores):
        raise Refused(f"span[ptile={slots}]: a host has {len(machine.cores)} slots. Job not submitted.", 255)
    nodes = -(-terms[1][0] // slots)
    racks = re.search(r"maxcus=(\d+)", terms[1][1])
    if racks and nodes > int(racks[1]) * machine.rack_nodes:
        raise Refused(f"maxcus={racks[1]}: {nodes} nodes do not fit. Job not submitted.", 255)
    return _fits(nodes, machine), {"csm": True, "smt": smt, "slots": slots}


def _terms(text: str) -> list[tuple[int, str]]:
    """``1*{...}+84*{...}`` of a compound resource requirement."""
    found = []
    for part in re.split(r"\+(?=\s*\d+\s*\*)", text):
        match = re.fullmatch(r"\s*(\d+)\s*\*\s*\{(.*)\}\s*", part)
        if match is None or any(match[2].count(a) != match[2].count(b) for a, b in ("[]", "()", "{}")):
            raise Refused(f"Bad resource requirement syntax: {part.strip()}. Job not submitted.", 255)
        for section in re.findall(r"([a-z_0-9]+)\[", re.sub(r"\[[^\]]*\]", "[]", match[2])):
            if section not in ("select", "order", "span", "cu", "rusage", "same", "affinity"):
                raise Refused(f"Bad resource requirement section: {section}. Job not submitted.", 255)
        if "excl" in match[2] or "balance" in match[2]:
            raise Refused("cu: excl and balance are not allowed in a compound requirement. Job not submitted.", 255)
        found.append((int(match[1]), match[2]))
    return found


def _required(given: Given) -> None:
    for key, what in (("P", "Project name"), ("W", "Wall time")):
        if key not in given:
            raise Refused(f"{what} is not specified (-{key}). Job not submitted.", 255)


def _easy(given: Given, machine: Machine, smt: int) -> tuple[int, dict[str, object]]:
    for key in ("R", "n", "cn_mem"):
        if key in given:
            raise Refused(f"-{key} cannot be used in easy mode; use -csm y. Job not submitted.", 255)
    _required(given)
    nodes = given.number("nnodes", 1)
    racks = re.search(r"maxcus=(\d+)", given.get("cn_cu"))
    if racks and nodes > int(racks[1]) * machine.rack_nodes:
        raise Refused(f"maxcus={racks[1]}: {nodes} nodes do not fit. Job not submitted.", 255)
    return _fits(nodes, machine), {"csm": True, "smt": smt}


def _plain(given: Given, machine: Machine) -> tuple[int, dict[str, object]]:
    tasks = int(given.get("n", "1").split(",")[0])
    if tasks < 1:
        raise Refused("0: Bad number of processors. Job not submitted.", 255)
    text = " ".join(given.lists.get("R", []))
    single = re.search(r"(?<![&|])[&|](?![&|])", text)
    if single or any(text.count(a) != text.count(b) for a, b in ("[]", "()", "{}")):
        raise Refused(f"Bad resource requirement syntax: {text}. Job not submitted.", 255)
    for section in re.findall(r"([a-z_0-9]+)\[", text):
        if section not in ("select", "order", "span", "cu", "rusage", "same", "affinity"):
            raise Refused(f"Bad resource requirement section: {section}. Job not submitted.", 255)
    span = re.search(r"span\[(ptile|hosts)=(\d+)\]", text)
    per_host = min(tasks, len(machine.cores))
    if span:
        per_host = int(span[2]) if span[1] == "ptile" else -(-tasks // int(span[2]))
    if per_host > len(machine.cores):
        raise Refused(f"{per_host} slots on a host that has {len(machine.cores)}. Job not submitted.", 255)
    if "gpu" in given:
        _gpu(given.get("gpu"), machine)
    return _fits(-(-tasks // per_host), machine), {"slots": per_host}


def _gpu(text: str, machine: Machine) -> None:
    if text == "-":
        return
    keys = {
        "num": r"[1-9]\d*(/(task|host))?", "mode": "shared|exclusive_process", "mps": r"yes.*|no|per_.*",
        "j_exclusive": "yes|no", "aff": "yes|no", "block": "yes|no", "gpack": "yes|no", "gmodel": r".+",
        "gmem": r"[0-9.]+[mgtMGT]?", "gtile": r"!|[0-9]+", "gvendor": "amd|nvidia", "nvlink": "yes",
        "glink": "yes|nvlink|xgmi",
    }  # fmt: skip
    for item in text.split(":"):
        key, _, value = item.partition("=")
        if key not in keys or not re.fullmatch(keys[key], value):
            raise Refused(f"{item}: GPU requirement syntax error. Job not submitted.", 255)
        if key == "num" and int(value.split("/")[0]) > len(machine.gpus):
            raise Refused(f"{item}: no host has that many GPUs. Job not submitted.", 255)


def _fits(nodes: int, machine: Machine) -> int:
    if nodes > len(machine.hosts):
        raise Refused("User specified host or host count cannot be satisfied. Job not submitted.", 255)
    return nodes
