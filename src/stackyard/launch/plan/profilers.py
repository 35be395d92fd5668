"""Profilers on chosen ranks, by one option and without editing the program: ``--profile nsys:ranks=0,8``.

A specification is a name and options, ``name:option=value:option=value``. Every profiler has the option `ranks`
(numbers and ranges, or ``all``; default: rank 0) and the options of its row. Its output is in the run directory, with
the rank in the file name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from stackyard.core import plugins
from stackyard.core.errors import InputError
from stackyard.core.hints import did_you_mean
from stackyard.core.late import dataclass
from stackyard.launch.plan.backends.base import HELPERS
from stackyard.launch.plan.model import Reason, Wrapper


@dataclass(frozen=True)
class Profiler:
    """A row: the words before the program, in which ``{step}`` and the row's options are filled in.

    Attributes:
        program: what must be on PATH on the nodes; empty if none.
        options: each with its words, in which ``{}`` is the value; the value is checked against `choices`.
        last: words after all options.
        all_ranks: applies to all ranks, because the program itself chooses who writes.
    """

    name: str
    reason: str
    program: str
    words: tuple[str, ...] = ()
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    last: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    all_ranks: bool = False


RANK = "rank-${STACKYARD_TASK}"

_PY_SPY = (
    'options=; while [ "$1" != -- ]; do options="$options $1"; shift; done; shift; '
    'py-spy record --format=speedscope --subprocesses --output="$0" $options -- '
    """sh -c 'sh -c '"'"'"$@"; echo $? > "$0"'"'"' "$0" "$@"; :' "$0.code" "$@"; code=$?; left=10; """
    'while [ "$code" = 0 ] && [ ! -s "$0.code" ] && [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done; '
    'if [ -s "$0.code" ]; then read -r code < "$0.code"; fi; rm -f "$0.code"; exit "$code"'
)
"""py-spy 0.4 exits with 0 even if its program fails, so the program's exit status is saved and returned.

It kills what it started once no Python is left, perhaps before the status is written: so a child of that writes it.
"""

ROWS = (
    # nsys profile --help; NVIDIA Nsight Systems user guide, "CLI profile command switch options"
    Profiler(
        "nsys", "a timeline of CUDA, NVTX and the operating system (.nsys-rep)", "nsys",
        ("nsys", "profile", f"--output={{step}}/nsys-{RANK}", "--force-overwrite=true"),
        {
            "trace": ("--trace={}",), "delay": ("--delay={}",), "duration": ("--duration={}",),
            "capture": ("--capture-range={}", "--capture-range-end=stop"),
        },
        {"capture": ("cudaProfilerApi", "nvtx")},
    ),
    # nvprof --help; CUDA, Profiler User's Guide, "nvprof": for GPUs before Ampere, last in CUDA 12
    Profiler(
        "nvprof", "kernel and API times of an NVIDIA GPU (.nvvp)", "nvprof",
        ("nvprof", "--force-overwrite", "--output-profile", f"{{step}}/nvprof-{RANK}.nvvp"),
        {"children": ("--profile-child-processes",)}, {"children": ("1",)},
    ),
    # rocprof --help, ROCm 5 and 6
    Profiler(
        "rocprof", "kernel times of an AMD GPU (.csv)", "rocprof",
        ("rocprof", "--hip-trace", "-o", f"{{step}}/rocprof-{RANK}.csv"), {"input": ("-i", "{}")},
    ),
    # rocprofv3 --help, ROCm 6.2 and newer
    Profiler(
        "rocprofv3", "a timeline of an AMD GPU", "rocprofv3",
        ("rocprofv3", "--hip-trace", "--kernel-trace", "--output-directory", "{step}", "--output-file",
         f"rocprofv3-{RANK}"),
        {"format": ("--output-format", "{}")}, {"format": ("csv", "json", "pftrace")}, ("--",),
    ),
    # py-spy record --help, 0.4
    Profiler(
        "py-spy", "a sampling profile of Python (speedscope.app, a JSON file)", "py-spy",
        ("sh", "-c", _PY_SPY, f"{{step}}/py-spy-{RANK}.json"),
        {"rate": ("--rate={}",), "duration": ("--duration={}",), "native": ("--native",)},
        {"native": ("1",)}, ("--",),
    ),
    # horovod/common/operations.cc: HOROVOD_TIMELINE is written by rank 0
    Profiler(
        "horovod", "Horovod's timeline (chrome://tracing)", "",
        variables={"HOROVOD_TIMELINE": "{step}/horovod-timeline.json"},
        options={"cycles": ()}, choices={"cycles": ("1",)}, all_ranks=True,
    ),
    # torch.profiler, around the script; steps are calls of an optimizer's step()
    Profiler(
        "torch", "PyTorch's trace of operators and kernels (chrome://tracing, TensorBoard)", "python",
        ("python", str(HELPERS / "torch_trace.py"), f"--output={{step}}/torch-{RANK}.json"),
        {"steps": ("--steps={}",)}, last=("--",),
    ),
)  # fmt: skip
TABLE = {row.name: row for row in ROWS}
GROUP = "stackyard.profilers"
"""The entry points of plug-ins; each is a `Profiler`."""


def wrap(specs: Sequence[str], ranks: int, step: str = "${STACKYARD_STEP}") -> tuple[Wrapper, ...]:
    """The wrappers of all requested profilers, in the order of their specifications.

    Args:
        ranks: the world size; a rank beyond it is an error.
        step: the run directory, as written into the words.

    Raises:
        InputError: an unknown profiler, option or value; the message lists the known ones.
    """
    return tuple(_wrapper(spec, ranks, step) for spec in specs)


def _wrapper(spec: str, ranks: int, step: str) -> Wrapper:
    name, *pairs = spec.split(":")
    row = plugins.find(GROUP, name, TABLE, Profiler, "profiler", "known: {}")
    options = dict(_option(row, text) for text in pairs)
    tasks = None if row.all_ranks else _tasks(options.pop("ranks", "0"), ranks)
    options.pop("ranks", None)
    words = [*row.words]
    variables = dict(row.variables)
    for option, value in options.items():
        words += [word.replace("{}", value) for word in row.options[option]]
        if (row.name, option) == ("horovod", "cycles"):
            variables["HOROVOD_TIMELINE_MARK_CYCLES"] = value
    filled = tuple(word.replace("{step}", step) for word in (*words, *row.last))
    needs = f"; requires {row.program} on PATH" if row.program else ""
    who = "all ranks" if tasks is None or len(tasks) == ranks else f"rank {', '.join(map(str, tasks))}"
    return Wrapper(
        filled, tasks, {key: value.replace("{step}", step) for key, value in variables.items()},
        (Reason(filled[:2] or tuple(variables), f"{row.reason}, {who}{needs}"),),
    )  # fmt: skip


def _option(row: Profiler, text: str) -> tuple[str, str]:
    """One ``option=value``, checked."""
    option, sign, value = text.partition("=")
    known = ("ranks", *row.options)
    if option not in known or not sign or not value:
        raise InputError(f"{row.name}: no such option: {text}", hint=_known(option, known, "=..."))
    choices = row.choices.get(option, ())
    if choices and value not in choices:
        raise InputError(f"{row.name}: invalid value {option}={value}", hint=_known(value, choices))
    return option, value


def _known(word: str, known: tuple[str, ...], tail: str = "") -> str:
    question = did_you_mean(word, known, shown=lambda name: name + tail)
    return f"{question} known: {', '.join(name + tail for name in known)}".lstrip()


def _tasks(text: str, ranks: int) -> tuple[int, ...]:
    """``all``, ``0,8`` or ``0-3``."""
    if text == "all":
        return tuple(range(ranks))
    tasks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise InputError(
                f"ranks={text} is not a list of ranks", hint="use e.g. ranks=0,8 or ranks=0-3 or ranks=all"
            )
        tasks += range(int(first), int(last or first) + 1)
    if not tasks or max(tasks) >= ranks:
        raise InputError(f"ranks={text} is out of range: valid ranks are 0 to {ranks - 1}")
    return tuple(dict.fromkeys(tasks))
