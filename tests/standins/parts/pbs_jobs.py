"""qsub, qstat and qdel of PBS Professional.

QSUB  qsub(1B) of OpenPBS, https://github.com/openpbs/openpbs/blob/master/doc/man1/qsub.1B
RES   pbs_resources(7B) of OpenPBS: select, place and what each resource's value looks like
QSTAT qstat(1B) of OpenPBS; its exit codes are PBS's error numbers, of which a shell sees the last eight bits:
      15001 (unknown job) 153, 15018 (unknown queue) 170, 15139 (job has finished) 35
POSIX qsub of POSIX.1-2017: a job's name has at most 15 characters
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import jobs
from .grammar import Given, Refused, Style, parse, table
from .machine import Machine, load

SERVER = "pbs"
OPTIONS = table(
    r"""
    -a | [0-9]{4,12}(\.[0-9]{2})?                     | QSUB
    -A | some                                        | QSUB
    -c | .+                                          | QSUB
    -C | any                                         | QSUB
    -e | some                                        | QSUB
    -f | -                                           | QSUB
    -h | -                                           | QSUB
    -I | -                                           | QSUB
    -j | oe|eo|n                                     | QSUB
    -J | some                                        | QSUB
    -k | [doen]+                                     | QSUB
    -l | some                                        | QSUB | many
    -m | n|[abej]+                                   | QSUB
    -M | some                                        | QSUB
    -N | some                                        | QSUB
    -o | some                                        | QSUB
    -p | [+-]?[0-9]+                                 | QSUB
    -P | some                                        | QSUB
    -q | some                                        | QSUB
    -r | [yn]                                        | QSUB
    -R | [oe]+                                       | QSUB
    -S | /.+                                         | QSUB
    -u | some                                        | QSUB
    -v | some                                        | QSUB
    -V | -                                           | QSUB
    -W | some                                        | QSUB | many
    -X | -                                           | QSUB
    -z | -                                           | QSUB
    """
)
STYLE = Style(
    "qsub", equals=False, code=2, unknown="qsub: invalid option -- '{word}'\nusage: qsub [-a date_time] ...",
    missing="qsub: option requires an argument -- '{word}'\nusage: qsub [-a date_time] ...",
    invalid="qsub: illegal {word} value",
)  # fmt: skip
RESOURCES = {
    "ncpus": r"\d+", "mpiprocs": r"\d+", "ompthreads": r"\d+", "ngpus": r"\d+", "naccelerators": r"\d+",
    "mem": r"\d+[kmgt]?[bw]", "vmem": r"\d+[kmgt]?[bw]", "host": r"\S+", "vnode": r"\S+", "arch": r"\S+",
    "system": r"\S+", "accelerator_model": r"\S+", "node_type": r"\S+", "tier0": r"\S+",
}  # fmt: skip
WIDE = {"walltime", "cput", "pmem", "pvmem", "file", "nice", "filesystems", "software", "min_walltime", "max_walltime"}
GROUPS = ("host", "tier0", "tier1", "switch", "rack")
DEPEND = "after|afterok|afternotok|afterany|before|beforeok|beforenotok|beforeany|on|runone"


def qsub(words: list[str]) -> int:
    """Submit a job."""
    machine = load()
    typed = parse(words, OPTIONS, STYLE)
    text = Path(typed.rest[0]).read_text() if typed.rest and Path(typed.rest[0]).is_file() else ""
    if typed.rest and not text:
        raise Refused(f"qsub: script file:: No such file or directory ({typed.rest[0]})", 1)
    text = text or sys.stdin.read()
    given = typed.under(parse(_directives(text, given_prefix=typed.get("C", "#PBS")), OPTIONS, STYLE))
    if "l" in typed and "l" in parse(_directives(text), OPTIONS, STYLE):
        given.lists["l"] = parse(_directives(text), OPTIONS, STYLE).lists["l"] + typed.lists["l"]
    shape = _resources(given, machine)
    name = _name(given, typed)
    job = jobs.Job(
        0, "pbs", name, _queue(given, machine), shape["nodes"], "", given.get("o", f"{name}.o%J").split(":")[-1],
        os.getcwd(), error=_error(given, name), minutes=shape["minutes"], requeue=given.get("r", "y") == "y",
        after=_after(given), held="h" in given,
        facts={**shape, "start_in": os.environ.get("HOME", os.getcwd()), "joined": given.get("j", "n") != "n",
               "handed": _handed(given)},
    )  # fmt: skip
    print(_submit(job, given, text))
    return 0


def _submit(job: jobs.Job, given: Given, text: str) -> str:
    try:
        found = jobs.indices(given.get("J")) if "J" in given else []
    except ValueError as error:
        raise Refused("qsub: illegal -J value", 2) from error
    if "J" in given and ("," in given.get("J") or len(found) < 2):
        raise Refused("qsub: illegal -J value", 2)
    if not found:
        made = jobs.submit(job, text, lambda number: {"id": f"{number}.{SERVER}"})
        return str(made.facts["id"])
    first = jobs.submit(replace(job, index=found[0]), text, lambda number: _named(number, found[0]))
    for index in found[1:]:
        jobs.submit(
            replace(job, index=index, array=first.number, facts={**job.facts, **_named(first.number, index)}), text
        )
    return str(first.facts["array_id"])


def _named(number: int, index: int) -> dict[str, str]:
    return {"id": f"{number}[{index}].{SERVER}", "array_id": f"{number}[].{SERVER}"}


def _handed(given: Given) -> dict[str, str]:
    """-V: the whole environment; -v NAME or NAME=VALUE, with commas."""
    found = dict(os.environ) if "V" in given else {}
    for item in given.get("v").split(",") if "v" in given else ():
        name, equals, value = item.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise Refused("qsub: illegal -v value", 2)
        found[name] = value if equals else os.environ.get(name, "")
    return found


def _directives(text: str, given_prefix: str = "#PBS") -> list[str]:
    """Words of the lines before the first command; both quotes, nothing is expanded."""
    words: list[str] = []
    for line in text.splitlines():
        if line.startswith(given_prefix) and given_prefix:
            rest = line[len(given_prefix) :].strip()
            while rest and not rest.startswith("#"):
                found = re.match(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+", rest)
                if found is None:
                    raise Refused("qsub: directive error: No matching quote", 2)
                words.append(re.sub(r"\"([^\"]*)\"|'([^']*)'", lambda m: m[1] if m[1] is not None else m[2], found[0]))
                rest = rest[found.end() :].strip()
        elif line.strip() and not line.startswith("#") and not line.startswith(":"):
            break
    return words


def _name(given: Given, typed: Given) -> str:
    name = given.get("N") or (Path(typed.rest[0]).name if typed.rest else "STDIN")[:15]
    if not re.fullmatch(r"[A-Za-z0-9_+-]\S*", name) or len(name) > 15:
        raise Refused("qsub: illegal -N value\nusage: qsub [-a date_time] ...", 2)
    return name


def _queue(given: Given, machine: Machine) -> str:
    queue = given.get("q", machine.queues[0]).split("@")[0]
    if queue not in machine.queues:
        raise Refused("qsub: Unknown queue", 170)
    return queue


def _error(given: Given, name: str) -> str:
    if given.get("j", "n") != "n":
        return ""
    return given.get("e", f"{name}.e%J").split(":")[-1]


def _after(given: Given) -> tuple[tuple[str, int], ...]:
    kinds = {"after": "started", "afterok": "done", "afternotok": "failed", "afterany": "ended"}
    found = []
    for attribute in given.lists.get("W", []):
        key, equals, value = attribute.partition("=")
        if not equals or key not in ("depend", "group_list", "block", "umask", "stagein", "stageout", "sandbox",
                                     "run_count", "release_nodes_on_stageout", "Output_Path"):  # fmt: skip
            raise Refused("qsub: illegal -W value", 2)
        for item in value.split(",") if key == "depend" else ():
            kind, *ids = item.split(":")
            if (
                not re.fullmatch(DEPEND, kind)
                or not ids
                or not all(re.fullmatch(r"\d+(\[\d*\])?(\.\S+)?", i) for i in ids)
            ):
                raise Refused("qsub: illegal -W value", 2)
            for text in ids if kind in kinds else ():
                number = int(re.match(r"\d+", text)[0])  # type: ignore[index]
                if jobs.read(number) is None:
                    raise Refused(f"qsub: Unknown Job Id {text}", 153)
                found.append((kinds[kind], number))
    return tuple(found)


def _resources(given: Given, machine: Machine) -> dict[str, Any]:
    wanted: dict[str, str] = {}
    for text in given.lists.get("l", []):
        for item in re.split(r",(?=[a-z_0-9]+=)", text):
            key, equals, value = item.partition("=")
            if not equals or not value:
                raise Refused("qsub: Illegal attribute or resource value", 2)
            wanted[key] = value
    if "nodes" in wanted and ("select" in wanted or "place" in wanted):
        raise Refused("qsub: -lnodes cannot be used with -lselect or -lplace", 2)
    if "place" in wanted and "select" not in wanted:
        raise Refused('qsub: "-l place" needs "-l select"', 2)
    unknown = [key for key in wanted if key not in ("select", "place", "nodes", *RESOURCES, *WIDE)]
    if unknown:
        raise Refused(f"qsub: Unknown resource: {unknown[0]}", 2)
    mixed = [key for key in wanted if key in ("ncpus", "mpiprocs", "ngpus", "mem") and "select" in wanted]
    if mixed:
        raise Refused(f'qsub: Resource "{mixed[0]}" may only be in a select chunk when select is used', 2)
    place = _place(wanted.get("place", "free"))
    chunks = [_chunk(text, machine) for text in wanted.get("select", "1:ncpus=1").split("+")]
    nodes = sum(count for count, _ in chunks) if place["arrangement"] == "scatter" else _packed(chunks, machine)
    if nodes > len(machine.hosts):
        raise Refused("qsub: Job violates queue and/or server resource limits", 2)
    first = chunks[0][1]
    return {
        "nodes": nodes, "minutes": _walltime(wanted.get("walltime", "0")), "ncpus": int(first.get("ncpus", "1")),
        "mpiprocs": int(first.get("mpiprocs", "1")), "place": wanted.get("place", "free"),
        "select": wanted.get("select", ""),
    }  # fmt: skip


def _place(text: str) -> dict[str, str]:
    found = {"arrangement": "free"}
    for part in text.split(":"):
        if part in ("free", "pack", "scatter", "vscatter"):
            found["arrangement"] = part
        elif part in ("excl", "shared", "exclhost"):
            found["sharing"] = part
        elif part.startswith("group=") and part[6:] in GROUPS and "group" not in found:
            found["group"] = part[6:]
        else:
            raise Refused("qsub: Illegal attribute or resource value: place", 2)
    return found


def _chunk(text: str, machine: Machine) -> tuple[int, dict[str, str]]:
    first, *rest = text.split(":")
    count = int(first) if first.isdigit() else 1
    found = {}
    for item in rest if first.isdigit() else (first, *rest):
        key, equals, value = item.partition("=")
        if key not in RESOURCES or not equals or not re.fullmatch(RESOURCES[key], value):
            raise Refused(f"qsub: Illegal attribute or resource value: {item}", 2)
        found[key] = value
    limits = {"ncpus": machine.all_cores * machine.smt, "ngpus": len(machine.gpus)}
    for key, most in limits.items():
        if int(found.get(key, "0")) > most:
            raise Refused(f"qsub: Job violates queue and/or server resource limits: {key}={found[key]} > {most}", 2)
    if count < 1:
        raise Refused("qsub: Illegal attribute or resource value: select", 2)
    return count, found


def _packed(chunks: list[tuple[int, dict[str, str]]], machine: Machine) -> int:
    cpus = sum(count * int(found.get("ncpus", "1")) for count, found in chunks)
    return max(-(-cpus // (machine.all_cores * machine.smt)), 1)


def _walltime(text: str) -> float:
    if not re.fullmatch(r"(\d+:)?(\d+:)?\d+(\.\d+)?", text):
        raise Refused("qsub: Illegal attribute or resource value: walltime", 2)
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds / 60


QSTAT = table(
    "-f | - | QSTAT\n-F | json|dsv | QSTAT\n-x | - | QSTAT\n-H | - | QSTAT\n-a | - | QSTAT\n-t | - | QSTAT\n"
    "-n | - | QSTAT\n-w | - | QSTAT\n-u | some | QSTAT\n-J | - | QSTAT\n-Q | - | QSTAT\n-B | - | QSTAT"
)


def qstat(words: list[str]) -> int:
    """Show jobs."""
    given = parse(words, QSTAT, Style("qstat", equals=False, code=2, unknown="qstat: invalid option -- '{word}'"))
    shown: dict[str, Any] = {}
    code = 0
    for text in given.rest or [job.facts["id"] for job in jobs.all_jobs() if job.state != jobs.ENDED]:
        found = _find(text)
        if not found:
            print(f"qstat: Unknown Job Id {text}", file=sys.stderr)
            code = 153
        elif all(job.state == jobs.ENDED for job in found) and not {"x", "H"} & set(given.lists):
            print(f"qstat: {text} Job has finished, use -x or -H to obtain historical job information", file=sys.stderr)
            code = 35
        else:
            shown |= _attributes(text, found)
            shown |= {job.facts["id"]: _one(job) for job in found} if "t" in given else {}
    if "f" in given and given.get("F") == "json":
        head = {"timestamp": int(time.time()), "pbs_version": "23.06.06", "pbs_server": SERVER}
        print(json.dumps({**head, **({"Jobs": shown} if shown else {})}, indent=4))
    elif "f" in given:
        for name, values in shown.items():
            print(f"Job Id: {name}", *(f"    {key} = {value}" for key, value in values.items()), sep="\n")
    else:
        for name, values in shown.items():
            print(f"{name:<17} {values['Job_Name']:<16} {values['job_state']} {values['queue']}")
    return code


def _find(text: str) -> list[jobs.Job]:
    match = re.fullmatch(r"(\d+)(\[(\d*)\])?(\.\S+)?", text)
    if match is None:
        raise Refused(f"qstat: illegally formed job identifier: {text}", 2)
    number = int(match[1])
    every = [job for job in jobs.all_jobs() if number in (job.number, job.array)]
    if match[3]:
        every = [job for job in every if job.index == int(match[3])]
    elif match[2] is None:
        every = [job for job in every if job.index is None]
    return every


def _attributes(text: str, found: list[jobs.Job]) -> dict[str, Any]:
    if "[]" in text:
        over = all(job.state == jobs.ENDED for job in found)
        begun = any(job.starts for job in found)
        bad = max((_status(job) or 0 for job in found), default=0)
        values: dict[str, Any] = {"Job_Name": found[0].name, "job_state": "F" if over else "B" if begun else "Q",
                                  "queue": found[0].queue, "array": "True"}  # fmt: skip
        return {found[0].facts["array_id"]: values | ({"Exit_status": 1 if bad else 0} if over else {})}
    return {job.facts["id"]: _one(job) for job in found}


def _one(job: jobs.Job) -> dict[str, Any]:
    state = {jobs.WAITING: "H" if job.held or job.after else "Q", jobs.RUNNING: "R"}.get(job.state, "F")
    values: dict[str, Any] = {
        "Job_Name": job.name, "Job_Owner": f"user@{os.uname().nodename}", "job_state": state, "queue": job.queue,
        "server": SERVER, "Resource_List": {"select": job.facts["select"], "place": job.facts["place"]},
    }  # fmt: skip
    if job.hosts:
        values["exec_host"] = "+".join(f"{host}/0*{job.facts['ncpus']}" for host in job.hosts)
    if job.starts:
        values["run_count"] = job.starts
    status = _status(job)
    if status is not None:
        values["Exit_status"] = status
    values["comment"] = _comment(job)
    return values


def _status(job: jobs.Job) -> int | None:
    """256 + signal after a signal; -29 over the wall time (JOB_EXEC_KILL_WALLTIME)."""
    if job.state != jobs.ENDED or (job.result == "cancelled" and job.code is None):
        return None
    if job.result == "timeout":
        return -29
    return 256 - job.code if job.code is not None and job.code < 0 else job.code


def _comment(job: jobs.Job) -> str:
    if job.state == jobs.WAITING:
        return "Not Running: Not enough free nodes available"
    if job.result == "cancelled":
        return "Job was terminated by the user" if job.code is None else "Job run and terminated"
    return f"Job run at {time.strftime('%a %b %d at %H:%M')}" + (" and finished" if job.state == jobs.ENDED else "")


QDEL = table("-x | - | QSUB\n-W | some | QSUB")


def qdel(words: list[str]) -> int:
    """End jobs: SIGTERM, then SIGKILL."""
    given = parse(words, QDEL, Style("qdel", equals=False, code=2, unknown="qdel: illegal option -- '{word}'"))
    if not given.rest:
        raise Refused("usage:\n\tqdel [-Wforce|-Wsuppress_email=X] [-x] job_identifier...", 2)
    for text in given.rest:
        found = _find(text)
        if not found:
            raise Refused(f"qdel: Unknown Job Id {text}", 153)
        alive = [job for job in found if job.state != jobs.ENDED]
        if not alive:
            raise Refused(f"qdel: Job has finished {text}", 35)
        for job in alive:
            jobs.want(job.number, "cancel")
    return 0


def qrerun(words: list[str]) -> int:
    """Start running jobs again."""
    given = parse(words, table("-W | some | QSUB"), Style("qrerun", equals=False, code=2))
    for text in given.rest:
        running = [job for job in _find(text) if job.state == jobs.RUNNING]
        if not running:
            raise Refused(f"qrerun: Request invalid for state of job {text}", 158)
        for job in running:
            if not job.requeue:
                raise Refused(f"qrerun: Job not rerunnable {text}", 159)
            jobs.want(job.number, "requeue")
    return 0
