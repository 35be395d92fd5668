"""qsub, qstat, qacct, qdel and qmod of Grid Engine.

SUBMIT  submit(1) of Grid Engine 8.1.9, https://gridscheduler.sourceforge.net/htmlman/htmlman1/qsub.html
PE      sge_pe(5): a parallel environment whose allocation_rule is a number gives every host that many slots
STATUS  qstat(1): the columns of the plain list, and the letters of a state
ACCT    accounting(5), qacct(1): failed and exit_status; 37 is "qmaster enforced h_rt, h_cpu, or h_vmem limit"
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from . import jobs
from .grammar import Given, Refused, Style, parse, table
from .machine import load

OPTIONS = table(
    r"""
    -a | [0-9]{8,12}(\.[0-9]{2})? | SUBMIT
    -A | some                     | SUBMIT
    -b | y|yes|n|no               | SUBMIT
    -cwd | -                      | SUBMIT
    -e | some                     | SUBMIT
    -h | -                        | SUBMIT
    -hold_jid | some              | SUBMIT
    -j | y|yes|n|no               | SUBMIT
    -l | some                     | SUBMIT | many
    -m | [beasn]+                 | SUBMIT
    -M | some                     | SUBMIT
    -notify | -                   | SUBMIT
    -N | some                     | SUBMIT
    -o | some                     | SUBMIT
    -p | -?[0-9]+                 | SUBMIT
    -P | some                     | SUBMIT
    -q | some                     | SUBMIT
    -r | y|yes|n|no               | SUBMIT
    -R | y|yes|n|no               | SUBMIT
    -S | /.+                      | SUBMIT
    -t | some                     | SUBMIT
    -tc | [0-9]+                  | SUBMIT
    -terse | -                    | SUBMIT
    -v | some                     | SUBMIT
    -V | -                        | SUBMIT
    """
)
STYLE = Style(
    "qsub", attached=False, equals=False, unknown="qsub: Unknown option {word}",
    missing='qsub: ERROR! "{word}" option must have argument', invalid="qsub: invalid option argument {word} {value}",
)  # fmt: skip
TIME, BYTES = r"(\d+:\d+:\d+|\d+)", r"\d+(\.\d+)?[KMGkmg]?"
RESOURCES = {"h_rt": TIME, "s_rt": TIME, "h_vmem": BYTES, "mem_free": BYTES, "gpu": r"\d+", "exclusive": "true|false"}


def rejected(why: str) -> Refused:
    """What the master says of a job that it does not take."""
    return Refused(f"Unable to run job: {why}.\nExiting.")


def qsub(words: list[str]) -> int:
    """Submit a script."""
    machine = load()
    with_pe, typed_words = _environments(words)
    typed = parse(typed_words, OPTIONS, STYLE)
    if not typed.rest or not Path(typed.rest[0]).is_file():
        raise Refused(f"qsub: Unable to read script file because of error: error opening {typed.rest[:1]}", 1)
    text = Path(typed.rest[0]).read_text()
    own_pe, lines = _environments(_directives(text))
    embedded = parse(lines, OPTIONS, STYLE)
    given = typed.under(embedded)
    wanted = _resources([*embedded.lists.get("l", []), *typed.lists.get("l", [])])
    name, slots = with_pe or own_pe or ("", 1)
    per_host = len(machine.cores)
    if name and name != "whole_nodes":
        raise rejected(f'job rejected: the requested parallel environment "{name}" does not exist')
    if slots % per_host and name:
        raise rejected(f'cannot run in PE "{name}" because it offers multiples of {per_host} slots')
    nodes = max(1, slots // per_host)
    if nodes > len(machine.hosts):
        raise rejected("error: no suitable queues")
    if given.get("q", machine.queues[0]) not in machine.queues:
        raise rejected(f'Job was rejected because job requests unknown queue "{given.get("q")}"')
    title = given.get("N", Path(typed.rest[0]).name)
    if not re.fullmatch(r"[^\d\s/:@\\*?][^\s/:@\\*?]*", title):
        raise Refused(f"qsub: ERROR! argument to -N option is not valid: {title}")
    job = jobs.Job(
        0, "sge", title, given.get("q", machine.queues[0]), nodes, "", given.get("o", f"{title}.o$JOB_ID"), os.getcwd(),
        minutes=_minutes(wanted.get("h_rt", "0")), requeue=given.get("r", "n").startswith("y"), held="h" in given,
        after=tuple(("ended", int(item)) for item in given.get("hold_jid").split(",") if item),
        facts={
            "slots": slots, "pe": name, "handed": dict(os.environ) if "V" in given else {},
            "start_in": os.getcwd() if "cwd" in given else os.environ.get("HOME", os.getcwd()),
        },
    )  # fmt: skip
    print(_submit(job, given, text))
    return 0


def _submit(job: jobs.Job, given: Given, text: str) -> str:
    if "t" not in given:
        made = jobs.submit(job, text)
        return f'Your job {made.number} ("{job.name}") has been submitted'
    try:
        found = jobs.indices(given.get("t"))
    except ValueError as error:
        raise Refused(f"qsub: invalid task range: {given.get('t')}") from error
    if "," in given.get("t") or found[0] < 1:
        raise Refused("qsub: ERROR! -t option has invalid task ids: ids begin at 1")
    first = jobs.submit(replace(job, index=found[0]), text)
    for index in found[1:]:
        jobs.submit(replace(job, index=index, array=first.number), text)
    return f'Your job-array {first.number}.{found[0]}-{found[-1]}:1 ("{job.name}") has been submitted'


def _environments(words: list[str]) -> tuple[tuple[str, int] | None, list[str]]:
    """The values of ``-pe NAME SLOTS``, the one option with two, and the other words."""
    if "-pe" not in words:
        return None, words
    at = words.index("-pe")
    values = words[at + 1 : at + 3]
    if len(values) < 2 or not values[1].isdecimal():
        raise Refused('qsub: ERROR! "-pe" option must have a name and a number of slots')
    return (values[0], int(values[1])), [*words[:at], *words[at + 3 :]]


def _directives(text: str) -> list[str]:
    """The words of all lines with ``#$``; both quotes enclose a word."""
    return [word for line in text.splitlines() if line.startswith("#$") for word in shlex.split(line[2:])]


def _resources(lists: list[str]) -> dict[str, str]:
    found = {}
    for item in ",".join(lists).split(",") if lists else ():
        name, _, value = item.partition("=")
        if name not in RESOURCES:
            raise rejected(f'unknown resource "{name}"')
        if not re.fullmatch(RESOURCES[name], value):
            raise rejected(f'wrong value "{value}" for resource "{name}"')
        found[name] = value
    return found


def _minutes(clock: str) -> float:
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds / 60


def qstat(words: list[str]) -> int:
    """The plain list of jobs that wait or run."""
    parse(words, table("-u | some | STATUS\n-s | [prszh]+ | STATUS"), Style("qstat", attached=False))
    rows = [job for job in jobs.all_jobs() if job.state != jobs.ENDED]
    if rows:
        print("job-ID  prior   name       user         state submit/start at     queue        slots ja-task-ID ")
        print("-" * 100)
    for job in rows:
        letters = "r" if job.state == jobs.RUNNING else "hqw" if job.held or job.after else "qw"
        when = time.strftime("%m/%d/%Y %H:%M:%S", time.localtime(job.submitted))
        where = f"{job.queue}@{job.hosts[0]}" if job.hosts else ""
        task = "" if job.index is None else str(job.index)
        print(f"{job.array or job.number:>7} 0.55500 {job.name[:10]:<10} user         {letters:<5} {when} {where:<12} "
              f"{job.facts['slots']:>5} {task}")  # fmt: skip
    return 0


def qacct(words: list[str]) -> int:
    """The accounting record of jobs that have ended."""
    given = parse(words, table("-j | some | ACCT\n-t | some | ACCT"), Style("qacct", attached=False))
    found = [job for job in _find(given.get("j")) if job.state == jobs.ENDED and job.starts]
    if not found:
        raise Refused(f"error: job id {given.get('j')} not found")
    for job in found:
        code = 128 - job.code if job.code is not None and job.code < 0 else job.code
        failed = "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit" if job.result == "timeout" else "0    "
        failed = "100 : assumedly after job" if job.result == "cancelled" else failed
        print("=" * 62, f"jobname      {job.name}", f"jobnumber    {job.array or job.number}", f"failed       {failed}",
              f"exit_status  {code}", sep="\n")  # fmt: skip
    return 0


def _find(text: str) -> list[jobs.Job]:
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?", text)
    if match is None:
        return []
    number = int(match[1])
    found = [job for job in jobs.all_jobs() if number in (job.number, job.array)]
    return [job for job in found if match[2] is None or job.index == int(match[2])]


def qdel(words: list[str]) -> int:
    """End jobs."""
    code = 0
    for text in words:
        alive = [job for job in _find(text) if job.state != jobs.ENDED]
        if not alive:
            print(f'denied: job "{text}" does not exist', file=sys.stderr)
            code = 1
        for job in alive:
            jobs.want(job.number, "cancel")
            print(f"user has registered the job {text} for deletion")
    return code


def qmod(words: list[str]) -> int:
    """``-rj``: start running jobs again."""
    if words[:1] != ["-rj"] or len(words) != 2:
        raise Refused("usage: qmod -rj job_list")
    running = [job for job in _find(words[1]) if job.state == jobs.RUNNING and job.requeue]
    if not running:
        raise Refused(f'qmod: invalid queue or job "{words[1]}"')
    for job in running:
        jobs.want(job.number, "requeue")
        print(f"Pushed rescheduling of job {words[1]} on host {job.hosts[0]}")
    return 0
