"""bjobs, bkill and brequeue of LSF.

BJOBS https://www.ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bjobs.1.html
IBM   https://www.ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/bkill.1.html, brequeue.1.html
"""

from __future__ import annotations

import re
import sys

from . import jobs
from .grammar import Refused, Style, parse, table
from .machine import load

BJOBS = table(
    """
    -noheader | -    | BJOBS
    -o        | some | BJOBS
    -a        | -    | BJOBS
    -d        | -    | BJOBS
    -p        | -    | BJOBS
    -r        | -    | BJOBS
    -w        | -    | BJOBS
    -l        | -    | BJOBS
    -json     | -    | BJOBS
    -X        | -    | BJOBS
    -u        | some | BJOBS
    -J        | some | BJOBS
    -q        | some | BJOBS
    """
)
STATES = {jobs.WAITING: "PEND", jobs.RUNNING: "RUN"}
REASONS = {
    "cancelled": "TERM_OWNER: job killed by owner",
    "timeout": "TERM_RUNLIMIT: job killed after reaching LSF run time limit",
}
FIELDS = ("jobid", "jobindex", "stat", "user", "queue", "job_name", "exit_code", "exit_reason", "exec_host",
          "pend_reason", "nexec_host", "slots", "submit_time", "start_time", "finish_time", "run_time")  # fmt: skip


def bjobs(words: list[str]) -> int:
    """Show jobs."""
    given = parse(words, BJOBS, Style("bjobs", equals=False, code=255, unknown="{word}: Illegal option"), stop=False)
    fields, delimiter = _format(given.get("o", "jobid stat queue job_name exec_host"))
    if "noheader" not in given:
        print(delimiter.join(field.upper() for field in fields))
    code = 0
    for number in given.rest or [str(job.number) for job in jobs.all_jobs() if job.state != jobs.ENDED]:
        found = _find(number)
        if not found:
            print(f"Job <{number}> is not found", file=sys.stderr)
            code = 255
        for job in found:
            print(delimiter.join(_field(job, field) for field in fields))
    return code


def _format(text: str) -> tuple[list[str], str]:
    match = re.search(r"delimiter='([^']*)'", text)
    names = re.sub(r"delimiter='[^']*'", "", text).split()
    fields = [name.split(":")[0] for name in names]
    for field in fields:
        if field not in FIELDS:
            raise Refused(f"{field}: Invalid field name in the output format (-o)", 255)
    return fields, match[1] if match else " "


def _find(text: str) -> list[jobs.Job]:
    match = re.fullmatch(r"(\d+)(?:\[(\d+)\])?", text)
    if match is None:
        raise Refused(f"{text}: Illegal job ID.", 255)
    number = int(match[1])
    every = [job for job in jobs.all_jobs() if job.number == number or job.array == number]
    return [job for job in every if match[2] is None or job.index == int(match[2])]


def _field(job: jobs.Job, field: str) -> str:
    ended = job.state == jobs.ENDED
    code = job.code or 0
    code = 128 - code if code < 0 else code
    machine = load()
    slots = job.facts.get("slots", len(machine.cores))
    launch = f"{machine.launch}:" if job.facts.get("csm") and machine.launch else ""
    values = {
        "jobid": str(job.array if job.array is not None else job.number),
        "jobindex": str(job.index or 0),
        "stat": STATES.get(job.state) or ("DONE" if job.result == "done" else "EXIT"),
        "queue": job.queue,
        "job_name": job.name,
        "exit_code": str(code) if ended and job.result != "done" and job.code is not None else "-",
        "exit_reason": REASONS.get(job.result, "-") if ended else "-",
        "exec_host": launch + ":".join(f"{slots}*{host}" for host in job.hosts) if job.hosts else "-",
        "pend_reason": _pending(job) if job.state == jobs.WAITING else "-",
        "nexec_host": str(len(job.hosts)),
    }
    return values.get(field, "-")


def _pending(job: jobs.Job) -> str:
    return "Job dependency condition not satisfied" if job.after else "Not enough hosts to meet the job's requirement"


BKILL = table("-s | some | IBM\n-r | - | IBM\n-J | some | IBM\n-q | some | IBM\n-u | some | IBM")


def bkill(words: list[str]) -> int:
    """End jobs: SIGINT, SIGTERM and SIGKILL, in that order (bkill(1))."""
    given = parse(words, BKILL, Style("bkill", equals=False, code=255, unknown="{word}: Illegal option"))
    if not given.rest:
        raise Refused("Job ID or options must be specified", 255)
    code = 0
    for text in given.rest:
        found = _find(text)
        alive = [job for job in found if job.state != jobs.ENDED]
        if not found:
            print(f"Job <{text}>: No matching job found", file=sys.stderr)
        elif not alive:
            print(f"Job <{text}>: Job has already finished", file=sys.stderr)
        for job in alive:
            jobs.want(job.number, f"signal:{given.get('s').removeprefix('SIG')}" if "s" in given else "cancel")
        if alive:
            print(f"Job <{text}> is being {'signaled' if 's' in given else 'terminated'}")
        code = code if alive else 255
    return code


def brequeue(words: list[str]) -> int:
    """Start running jobs again."""
    given = parse(words, table("-r | - | IBM\n-d | - | IBM\n-e | - | IBM\n-a | - | IBM"), Style("brequeue", code=255))
    for text in given.rest:
        running = [job for job in _find(text) if job.state == jobs.RUNNING]
        if not running:
            raise Refused(f"Job <{text}>: No matching job found", 255)
        for job in running:
            jobs.want(job.number, "requeue")
        print(f"Job <{text}> is being requeued")
    return 0
