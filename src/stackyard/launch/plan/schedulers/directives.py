"""`DirectiveScheduler`: a scheduler whose head, states and variables are data.

The heads of Slurm, LSF and PBS depend on settings of the machine, so each has a class. Others, such as Grid Engine and
OAR, differ only in words, which a plug-in supplies; a request without words is rejected by name, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from stackyard.core.findings import counted
from stackyard.launch.plan.model import BatchHead, BatchRequest, JobPhase, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import ask
from stackyard.launch.plan.schedulers.base import Batch


class DirectiveScheduler(Batch):
    """A scheduler defined by a table of directives and patterns for the output of its client programs.

    Attributes:
        prefix: the beginning of a directive: ``#$``.
        options: the words of each request, by its name in `requests`; ``{value}`` and the `numbers` are filled in. An
            empty text: no directive is needed. A request without an entry is rejected.
        fixed: the words of every head, each with its reason.
        letters: the letter of each mail event; the requested ones are joined.
        index_in_output: the placeholder for the array index in the name of an output file.
        task_pattern: also used for the id of this task, since `job_variable` has the array's.
        state_words: the command that prints the state; ``{job}`` is the id.
        state_pattern: its group ``state`` is the word for the state, in a line of the job; ``{job}`` is the id.
        states: the phase of each word.
        end_words, end_pattern: the command and pattern for jobs that have ended; the group ``code`` is the exit status.
        ends: the phases of terminated jobs, by patterns for the output of `end_words`.
        head_options: for lint, every option that a head may have, with the meaning of each word of its value: ``{"-V":
            "", "-t": "array", "-pe": "value tasks", "-l": "value", "-l h_rt": "time"}``; at most two words. Meanings
            are nodes, tasks, tasks_per_node, cpus_per_task, gpus_per_node, gpus_per_task, time, memory (of a node),
            array, output, account, queue, name, and value for all others. Empty: heads are not judged.
        head_excludes: sets of mutually exclusive options.
        head_needs: options that require another option: each with the alternatives, one of which must be present.
        time_pattern: a wall time in a head, with the groups ``days``, ``hours``, ``minutes`` and ``seconds``.
    """

    prefix: str
    options: Mapping[str, str]
    fixed: Mapping[str, str] = {}
    letters: Mapping[str, str] = {}
    index_in_output: str = ""
    state_words: tuple[str, ...]
    state_pattern: str
    states: Mapping[str, JobPhase]
    end_words: tuple[str, ...] = ()
    end_pattern: str = ""
    ends: Mapping[str, JobPhase] = {}
    head_options: Mapping[str, str] = {}
    head_excludes: tuple[tuple[str, ...], ...] = ()
    head_needs: Mapping[str, tuple[str, ...]] = {}
    time_pattern: str = ""

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for a request without words in the table."""
        directives, known = heads.Directives(), numbers(request)
        for name, value, reason in requests(request, self.letters, self.index_in_output):
            if name not in self.options:
                raise heads.unsupported(self.name.upper(), f"option for {name}={value}", _HINTS.get(name, _HINT))
            if words := self.options[name].split():
                directives.add(reason, *(word.format(value=value, **known) for word in words))
        for text, reason in self.fixed.items():
            directives.add(reason, *text.split())
        directives.own(request)
        return directives.head(self.prefix)

    def own_id(self, job: str, index: str, environ: Mapping[str, str]) -> str:
        """The id of this task, derived from the array's if the variable has that."""
        return self.task_id(job, index) if self.task_pattern else job

    def state(self, job: str) -> JobState:
        """Query the command for waiting and running jobs, then the one for ended jobs.

        Raises MissingError (no such program), CommandError (it timed out).
        """
        said = ask(_filled(self.state_words, job))
        hit = re.search(self.state_pattern.format(job=re.escape(job)), said.stdout, re.MULTILINE)
        if hit is not None:
            word = hit["state"]
            return JobState(self.states.get(word, "unknown"), word)
        if not self.end_words:
            return JobState("unknown", f"{self.name.upper()} no longer lists this job")
        said = ask(_filled(self.end_words, job))
        ended = re.search(self.end_pattern, said.stdout, re.MULTILINE)
        if ended is None:
            return JobState("unknown", f"{self.name.upper()} has no record of this job")
        code = int(ended["code"])
        for pattern, phase in self.ends.items():
            if match := re.search(pattern, said.stdout, re.MULTILINE):
                return JobState(phase, match[0].strip(), code)
        return JobState("failed" if code else "done", "", code)


_HINT = "leave it out, or give the scheduler's own option with --scheduler-arg"
_HINTS = {
    "exclusive": "use --shared, or set scheduler.exclusive: false in site.yaml",
    "gpus": "use -g 0, or set scheduler.gpu_request: none in site.yaml",
    "racks": "leave out --pack racks",
}


def _filled(words: tuple[str, ...], job: str) -> tuple[str, ...]:
    return tuple(word.format(job=job) for word in words)


def numbers(request: BatchRequest) -> dict[str, int | str]:
    """The values that a directive may contain besides its own: sizes of the job, and its time in three formats."""
    per_node, (mebibytes, _) = heads.cores(request), heads.memory(request)
    return {
        "nodes": request.nodes, "ranks_per_node": request.layout.ranks_per_node,
        "ranks": request.nodes * request.layout.ranks_per_node, "cores": per_node, "slots": request.nodes * per_node,
        "node_slots": request.nodes * request.layout.node.cores,
        "gpus": heads.gpus(request), "memory_mib": mebibytes, "memory_mib_per_core": -(-mebibytes // max(1, per_node)),
        "clock": heads.clock(request), "minutes": heads.minutes(request), "seconds": heads.minutes(request) * 60,
    }  # fmt: skip


def requests(request: BatchRequest, letters: Mapping[str, str], index: str) -> Iterator[tuple[str, str, str]]:
    """The requests of a job: the name of each, its value, and the reason for the directive."""
    options = request.options
    per_node = heads.cores(request)
    mebibytes, amount = heads.memory(request)
    gpus = heads.gpus(request) if request.scheduler.gpu_request != "none" else 0
    events = "".join(letters.get(event, "?") for event in options.mail_events)
    every = (
        ("job_name", heads.name(request), "job name"),
        ("account", options.account, "project to charge"),
        ("queue", heads.queue(request), "queue of the nodes"),
        ("qos", options.qos, "quality of service"),
        ("constraint", heads.constraint(request), "only nodes with this feature"),
        ("reservation", options.reservation, "reservation"),
        ("dependency", options.dependency, "starts after other jobs"),
        ("time", heads.clock(request) if options.time_min else "", "wall time limit"),
        ("nodes", str(request.nodes), f"{counted(request.nodes, 'node')}, each with {counted(per_node, 'core')}"),
        ("gpus", str(gpus or ""), f"{counted(gpus, 'GPU')} per node"),
        ("memory", str(mebibytes or ""), f"{amount} per node"),
        ("exclusive", "yes" if heads.exclusive(request) else "", "exclusive nodes, not shared with other jobs"),
        ("racks", str(heads.racks(request) or ""), f"nodes from at most {counted(heads.racks(request), 'rack')}"),
        ("output", heads.output(request, index), "output file of the script"),
        ("array", options.array, "one job per array index"),
        ("requeue" if options.requeue else "no_requeue", "yes", "restarts" if options.requeue else "never restarts"),
        ("signal", str(options.signal_s or ""), f"sends SIGUSR1 {options.signal_s} s before the end"),
        ("mail_events", events, "events that send mail"),
        ("mail", options.mail, "mail recipient"),
    )
    return (row for row in every if row[1])
