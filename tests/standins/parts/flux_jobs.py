"""``flux batch``, ``jobs``, ``cancel``, ``hostlist`` and ``getattr`` of flux-core.

BATCH https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/flux-batch.html
RFC36 https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_36.html (directives in a script)
JOBS  https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man1/flux-jobs.html
"""

from __future__ import annotations

import os
import re
import shlex
import string
import sys
from pathlib import Path

from . import flux_run, jobs
from .flux_run import check_common, fail, style
from .grammar import Given, Refused, Style, parse, table
from .machine import Machine, load

BATCH = table(
    flux_run.COMMON.replace(" RUN", " BATCH")
    + """
    -n --nslots         | some | BATCH
    -c --cores-per-slot | some | BATCH
    -g --gpus-per-slot  | some | BATCH
    --conf              | some | BATCH | many
    --broker-opts       | some | BATCH | many
    --wrap              | -    | BATCH
    --dump              | any  | BATCH
    --quiet             | -    | BATCH
    """
)
ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def batch(words: list[str]) -> int:
    """Submit a script."""
    machine = load()
    typed = parse(words, BATCH, style("flux-batch"))
    text = _script(typed)
    given = typed.under(parse(_directives(text), BATCH, style("flux-batch")))
    check_common(given, "flux-batch", machine)
    flux_run.shell_options(given, "flux-batch")
    nodes = _nodes(given, machine)
    limit = flux_run.seconds(given.get("time-limit")) if "time-limit" in given else 0
    minutes = (limit or 0) / 60 if re.search(r"[smhd]$", given.get("time-limit")) else limit or 0
    signal, _, ahead = given.get("signal").partition("@")
    job = jobs.Job(
        0, "flux", given.get("job-name", Path(typed.rest[0]).name if typed.rest else "batch"),
        given.get("queue", machine.queues[0]), nodes, "", given.get("output", "flux-{{id}}.out"),
        given.get("cwd") or os.getcwd(), error=given.get("error"), minutes=minutes,
        append="output.mode=append" in given.lists.get("setopt", []),
        signal=(signal or "USR1").removeprefix("SIG") if "signal" in given else "",
        signal_s=flux_run.seconds(ahead or "60s") or 60, after=_after(given),
        held=given.get("urgency") in ("0", "hold"),
    )  # fmt: skip
    if "dry-run" in given:
        print('{"version": 1}')
        return 0
    made = jobs.submit(job, text, lambda number: {"id": f58(number)})
    if "quiet" not in given:
        print(f58(made.number))
    return 0


def f58(number: int) -> str:
    """A job's number as Flux writes it (RFC 19): ƒ and base 58."""
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = ALPHABET[digit] + text
    return "ƒ" + text


def _number(text: str) -> int:
    if text.isdigit():
        return int(text)
    number = 0
    for letter in text[1:]:
        if text[0] not in "ƒf" or letter not in ALPHABET:
            raise fail("flux", f"invalid JOBID value: '{text}'")
        number = number * 58 + ALPHABET.index(letter)
    return number


def _script(typed: Given) -> str:
    if "wrap" in typed:
        return "#!/bin/sh\n" + (shlex.join(typed.rest) if typed.rest else sys.stdin.read()) + "\n"
    if not typed.rest:
        text = sys.stdin.read()
    else:
        try:
            text = Path(typed.rest[0]).read_text(encoding="utf-8")
        except OSError as error:
            raise fail("flux-batch", f"Failed to open {typed.rest[0]}: {error.strerror}") from error
    if not text.startswith("#!"):
        raise fail("flux-batch", f"{typed.rest[0] if typed.rest else 'stdin'} does not appear to start with '#!'")
    return text


def _directives(text: str) -> list[str]:
    """RFC 36: one sentinel for all, in one group, quoted as in a shell, with comments."""
    words: list[str] = []
    sentinel = ended = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"(\W*(?:flux|FLUX):)(.*)", line)
        if match is None:
            if sentinel and line.strip() and not line.startswith(sentinel[0]):
                ended = line
            continue
        if sentinel and match[1] != sentinel:
            raise fail("flux-batch", f"line {number}: sentinel changed from '{sentinel}' to '{match[1]}'")
        if ended:
            raise fail("flux-batch", f"line {number}: orphan '{match[1]}' detected after '{ended}'")
        sentinel = match[1]
        try:
            found = shlex.split(match[2], comments=True)
        except ValueError as error:
            raise fail("flux-batch", f"line {number}: {error}") from error
        if any(not word.startswith("-") for word in found[:1]):
            raise fail("flux-batch", f"line {number}: unknown directive: {found[0]}")
        words += found
    return words


def _nodes(given: Given, machine: Machine) -> int:
    if "nslots" not in given and "nodes" not in given:
        raise fail("flux-batch", "Number of slots to allocate must be specified")
    if "exclusive" in given and "nodes" not in given:
        raise fail("flux-batch", "exclusive can only be set with a node count")
    slots = given.number("nslots", given.number("nodes", 1))
    cores, gpus = given.number("cores-per-slot", 1), given.number("gpus-per-slot", 0)
    if "nodes" in given:
        nodes = given.number("nodes", 1)
        if nodes > slots:
            raise fail("flux-batch", "node count must not be greater than slot count")
    else:
        fit = min(len(machine.cores) // cores, len(machine.gpus) // gpus if gpus else slots)
        nodes = -(-slots // fit) if fit else len(machine.hosts) + 1
    per_node = -(-slots // nodes)
    if nodes > len(machine.hosts) or per_node * cores > len(machine.cores) or per_node * gpus > len(machine.gpus):
        raise fail("flux-batch", "job-ingest: unsatisfiable request")
    return nodes


def _after(given: Given) -> tuple[tuple[str, int], ...]:
    kinds = {"after": "started", "afterany": "ended", "afterok": "done", "afternotok": "failed"}
    found = []
    for uri in given.lists.get("dependency", []):
        kind, _, value = uri.partition(":")
        if kind in kinds:
            number = _number(value)
            if jobs.read(number) is None:
                raise fail("flux-batch", f"dependency: after: job {value} not found")
            found.append((kinds[kind], number))
    return tuple(found)


JOBS = table(
    """
    -a                   | -    | JOBS
    -A                   | -    | JOBS
    -n --suppress-header --no-header | - | JOBS
    -u --user            | some | JOBS
    -c --count           | some | JOBS
    -f --filter          | some | JOBS
    -o --format          | some | JOBS
    --color              | any  | JOBS
    --json               | -    | JOBS
    -R --recursive       | -    | JOBS
    --stats              | -    | JOBS
    """
)
FIELDS = {
    "id", "id.f58", "id.dec", "name", "state", "state_single", "result", "result_abbrev", "status", "status_abbrev",
    "returncode", "success", "exception.occurred", "exception.severity", "exception.type", "exception.note",
    "nodelist", "nnodes", "ntasks", "queue", "username", "runtime", "dependencies", "annotations", "urgency",
}  # fmt: skip


def list_jobs(words: list[str]) -> int:
    """Show jobs."""
    given = parse(words, JOBS, style("flux-jobs"), stop=False)
    form = given.get("format", "{id.f58} {name} {status} {nnodes} {nodelist}")
    names = [name for _, name, _, _ in string.Formatter().parse(form) if name]
    for name in names:
        if name not in FIELDS:
            raise fail("flux-jobs", f"Unknown format field: {name}")
    if "suppress-header" not in given:
        print(re.sub(r"\{([^}:!]*)[^}]*\}", lambda m: m[1].upper(), form))
    code = 0
    for text in given.rest:
        job = jobs.read(_number(text))
        if job is None:
            print(f"flux-jobs: ERROR: {text}: No such file or directory", file=sys.stderr)
            code = 1
        else:
            print(_line(form, job))
    if not given.rest:
        for job in jobs.all_jobs():
            if "a" in given or job.state != jobs.ENDED:
                print(_line(form, job))
    return code


def _line(form: str, job: jobs.Job) -> str:
    values = _values(job)
    return re.sub(r"\{([^}:!]*)[^}]*\}", lambda match: values.get(match[1], ""), form)


def _values(job: jobs.Job) -> dict[str, str]:
    ended = job.state == jobs.ENDED
    result = {"done": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELED", "timeout": "TIMEOUT"}.get(
        job.result, ""
    )
    waiting = "DEPEND" if job.after else "SCHED"
    state = {jobs.WAITING: waiting, jobs.RUNNING: "RUN"}.get(job.state, "INACTIVE")
    exception = {"cancelled": ("cancel", ""), "timeout": ("timeout", "resource allocation expired")}.get(job.result)
    status = result if ended else "RUNNING" if state == "RUN" else "PENDING"
    code = "" if not ended else "-128" if job.code is None else str(job.code)
    return {
        "id": f58(job.number), "id.f58": f58(job.number), "id.dec": str(job.number), "name": job.name, "state": state,
        "result": result if ended else "", "status": status, "returncode": code,
        "success": str(job.result == "done") if ended else "", "exception.occurred": str(bool(exception)),
        "exception.type": exception[0] if exception else "", "exception.note": exception[1] if exception else "",
        "nodelist": _nodelist(job.hosts), "nnodes": str(len(job.hosts)), "queue": job.queue,
    }  # fmt: skip


def _nodelist(hosts: tuple[str, ...]) -> str:
    """RFC 29: ``tuolumne[1001-1002]``."""
    split = [re.fullmatch(r"(.*?)(\d+)", host) for host in hosts]
    if len(hosts) < 2 or not all(split) or len({m[1] for m in split if m}) > 1:
        return ",".join(hosts)
    found = [m[2] for m in split if m]
    runs: list[list[str]] = []
    for text in found:
        if runs and int(text) == int(runs[-1][-1]) + 1:
            runs[-1].append(text)
        else:
            runs.append([text])
    inside = ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    prefix = split[0][1] if split[0] else ""
    return f"{prefix}[{inside}]"


def cancel(words: list[str]) -> int:
    """End jobs."""
    given = parse(words, table("-n --dry-run | - | JOBS\n-m --message | some | JOBS\n-q --quiet | - | JOBS"),
                  style("flux-cancel"))  # fmt: skip
    if not given.rest:
        raise Refused("usage: flux-cancel [OPTIONS] JOBID [JOBID ...]", 2)
    for text in given.rest:
        job = jobs.read(_number(text))
        if job is None:
            raise fail("flux-cancel", f"{text}: unknown job id")
        if job.state == jobs.ENDED:
            raise fail("flux-cancel", f"{text}: job is inactive")
        jobs.want(job.number, "cancel")
    return 0


def getattr_(words: list[str]) -> int:
    """Attributes of the instance's broker."""
    given = parse(words, table("-v | - | JOBS"), Style("flux-getattr", code=1))
    hosts = flux_run.instance_hosts(load())
    values = {"hostlist": _nodelist(hosts), "size": str(len(hosts)), "rank": "0"}
    if os.environ.get("STANDIN_FLUX_JOB"):
        values["jobid"] = os.environ["STANDIN_FLUX_JOB"]
    name = given.rest[0] if given.rest else ""
    if name not in values:
        raise Refused(f"flux-getattr: {name}: No such file or directory", 1)
    print(values[name])
    return 0


def hostlist(words: list[str]) -> int:
    """``flux hostlist local|instance``: the hosts of the instance."""
    options = table(
        "-e --expand | - | JOBS\n-d --delimiter | any | JOBS\n-l --limit | some | JOBS\n-c --count | - | JOBS"
    )
    given = parse(words, options, style("flux-hostlist"), stop=False)
    if given.rest and given.rest[0] not in ("local", "instance", "avail"):
        raise fail("flux-hostlist", f"Invalid source: {given.rest[0]}")
    hosts = flux_run.instance_hosts(load())
    if "count" in given:
        print(len(hosts))
    else:
        print(given.get("delimiter", " ").join(hosts) if "expand" in given else _nodelist(hosts))
    return 0
