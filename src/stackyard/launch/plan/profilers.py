"""Profilers on chosen ranks, by one option and without editing the program: ``--profile nsys:ranks=0,8``.

A specification is a name and options, ``name:option=value:option=value``. Every profiler has the option `ranks`
(numbers and ranges, or ``all``; default: the first rank of each node) and the options of its row. Its files are in
``profile/<name>/`` of the run, named by rank: ``rank-00008.nsys-rep``.

Most are programs around the program. Those with a `package` are started in its Python by the probe, which reads their
options from ``STACKYARD_TRACE_<NAME>`` (`stackyard.launch.probe`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from stackyard.core import plugins
from stackyard.core.errors import InputError, MissingError
from stackyard.core.findings import Finding
from stackyard.core.hints import did_you_mean
from stackyard.core.late import dataclass
from stackyard.host.run.command import run, which
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.model import Reason, Wrapper
from stackyard.launch.request.intent import Intent


@dataclass(frozen=True)
class Profiler:
    """A row: the words before the program, in which ``{step}``, ``{out}`` and the row's options are filled in.

    Attributes:
        program: what must be on PATH on the nodes; empty if none.
        options: each with its words, in which ``{}`` is the value; the value is checked against `choices`.
        last: words after all options.
        all_ranks: applies to all ranks, because the program itself chooses who writes.
        package: the module of the stack that records; its options are settings of its trace, and no words.
        defaults: the options that apply unless they, or one of `instead`, are given.
        megabytes: what a rank writes for each `unit`, an option that counts (``steps``, ``duration``, ``kernels``), in
            training on a GPU; on a CPU it is a tenth.
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
    package: str = ""
    defaults: dict[str, str] = field(default_factory=dict)
    instead: tuple[str, ...] = ()
    megabytes: float = 0.0
    unit: str = ""


FILE = "{step}/profile/{name}/${STACKYARD_RANK_FILE}"
"""``{out}``: where a rank's file is, without its end."""

_PY_SPY = (
    'options=; while [ "$1" != -- ]; do options="$options $1"; shift; done; shift; '
    'py-spy record --format=speedscope --subprocesses --output="$0" $options -- '
    """sh -c 'sh -c '"'"'"$@"; echo $? > "$0"'"'"' "$0" "$@"; :' "$0.code" "$@"; code=$?; left=10; """
    'while [ "$code" = 0 ] && [ ! -s "$0.code" ] && [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done; '
    'if [ -s "$0.code" ]; then read -r code < "$0.code"; fi; rm -f "$0.code"; '
    """[ ! -s "$0" ] || sed -i 's/,"[a-z]*":null//g; s/"activeProfileIndex":null,//' "$0"; exit "$code\""""
)
"""py-spy 0.4 exits with 0 even if its program fails, so the program's exit status is saved and returned. It also writes
null for numbers that it does not have, where speedscope's format leaves them out.

It kills what it started once no Python is left, perhaps before the status is written: so a child of that writes it.
"""

_YES = ("1",)
_SECONDS = {"delay": (), "duration": ()}  # type: dict[str, tuple[str, ...]]
_WINDOW = {"steps": "3-13"}
"""Steps of torch, TensorFlow and JAX without an option: past the slow first ones, and a trace that can be looked at."""

ROWS = (
    # nsys profile --help; NVIDIA Nsight Systems user guide, "CLI profile command switch options"
    Profiler(
        "nsys", "a timeline of CUDA, NVTX and the operating system (.nsys-rep)", "nsys",
        ("nsys", "profile", "--output={out}", "--force-overwrite=true"),
        {
            "trace": ("--trace={}",), "delay": ("--delay={}",), "duration": ("--duration={}",),
            "capture": ("--capture-range={}", "--capture-range-end=stop"),
            "steps": ("--capture-range=cudaProfilerApi", "--capture-range-end=stop"),
        },
        {"capture": ("cudaProfilerApi", "nvtx")}, megabytes=2, unit="duration",
    ),
    # ncu --help; NVIDIA Nsight Compute CLI, "Command Line Options"
    Profiler(
        "ncu", "the counters of single CUDA kernels, each of them run several times (.ncu-rep)", "ncu",
        ("ncu", "--export={out}", "--force-overwrite", "--target-processes=all"),
        {
            "kernels": ("--launch-count={}",), "skip": ("--launch-skip={}",), "name": ("--kernel-name={}",),
            "set": ("--set={}",), "steps": ("--profile-from-start=no",),
        },
        defaults={"kernels": "100"}, instead=("steps",), megabytes=0.2, unit="kernels",
    ),
    # rocprof --help, ROCm 5 and 6
    Profiler(
        "rocprof", "kernel times of an AMD GPU (.csv)", "rocprof",
        ("rocprof", "--hip-trace", "-o", "{out}.csv"), {"input": ("-i", "{}")},
    ),
    # rocprofv3 --help, ROCm 6.2 and newer
    Profiler(
        "rocprofv3", "a timeline of an AMD GPU", "rocprofv3",
        ("rocprofv3", "--hip-trace", "--kernel-trace", "--output-directory", "{step}/profile/rocprofv3",
         "--output-file", "${STACKYARD_RANK_FILE}"),
        {"format": ("--output-format", "{}")}, {"format": ("csv", "json", "pftrace")}, ("--",),
    ),
    # py-spy record --help, 0.4
    Profiler(
        "py-spy", "a sampling profile of Python (speedscope.app, a JSON file)", "py-spy",
        ("sh", "-c", _PY_SPY, "{out}.speedscope.json"),
        {"rate": ("--rate={}",), "duration": ("--duration={}",), "native": ("--native",)},
        {"native": _YES}, ("--",), megabytes=0.02, unit="duration",
    ),
    # horovod/common/operations.cc: HOROVOD_TIMELINE is written by rank 0
    Profiler(
        "horovod", "Horovod's timeline (chrome://tracing)", "",
        variables={"HOROVOD_TIMELINE": "{step}/profile/horovod/timeline.json"},
        options={"cycles": ()}, choices={"cycles": _YES}, all_ranks=True,
    ),
    # torch.profiler; steps are calls of an optimizer's step()
    Profiler(
        "torch", "PyTorch's trace of operators and kernels (ui.perfetto.dev, HTA)", "", package="torch",
        options={"steps": (), **_SECONDS, "shapes": (), "memory": ()}, choices={"shapes": _YES, "memory": _YES},
        defaults=_WINDOW, instead=("delay", "duration"), megabytes=2, unit="steps",
    ),
    # tf.profiler.experimental; steps are batches of Keras' fit
    Profiler(
        "tensorflow", "TensorFlow's trace of operations and kernels (TensorBoard, xprof)", "", package="tensorflow",
        options={"steps": (), **_SECONDS}, defaults=_WINDOW, instead=("delay", "duration"), megabytes=2, unit="steps",
    ),
    # jax.profiler; steps are StepTraceAnnotations of the program
    Profiler(
        "jax", "JAX's trace of operations and kernels (TensorBoard, xprof, ui.perfetto.dev)", "", package="jax",
        options={"steps": (), **_SECONDS}, defaults=_WINDOW, instead=("delay", "duration"), megabytes=2, unit="steps",
    ),
    # memray.Tracker
    Profiler(
        "memray", "every allocation of Python and of C (memray flamegraph)", "", package="memray",
        options={**_SECONDS, "native": ()}, choices={"native": _YES}, megabytes=2, unit="duration",
    ),
)  # fmt: skip
TABLE = {row.name: row for row in ROWS}
GROUP = "stackyard.profilers"
"""The entry points of plug-ins; each is a `Profiler`."""

ENDED = {
    "nvprof": (
        "NVIDIA ended it with CUDA 12, and it knows no GPU after Volta",
        "use --profile nsys for a timeline, --profile ncu for kernels. On an older GPU, whose CUDA has it, run it as "
        "the program: stackyard launch nvprof -o '%q{STACKYARD_STEP}/nvprof-%q{STACKYARD_TASK}.nvvp' python train.py",
    ),
    "dlprof": (
        "NVIDIA ended it with its containers of 2022",
        "use --profile torch or tensorflow, then stackyard report RUN; for the GPU's timeline --profile nsys",
    ),
}
"""Profilers that are asked for though they have ended: why, and the successor."""


def wrap(specs: Sequence[str], layout: Layout, each: int = 1, step: str = "${STACKYARD_STEP}") -> tuple[Wrapper, ...]:
    """The wrappers of all requested profilers, in the order of their specifications.

    Args:
        layout: of the tasks; a rank beyond them is an error.
        each: the number of ranks that each task starts (torchrun); a profiler around a task sees all of them.
        step: the run directory, as written into the words.

    Raises:
        InputError: an unknown profiler, option or value; the message lists the known ones.
    """
    return tuple(_wrapper(spec, layout, each, step) for spec in specs)


def _row(spec: str) -> tuple[Profiler, dict[str, str]]:
    """The profiler of a specification and its options, checked, with those that apply by default."""
    name, *pairs = spec.split(":")
    if name in ENDED:
        why, hint = ENDED[name]
        raise InputError(f"{name} is not supported: {why}", hint=hint)
    row = plugins.find(GROUP, name, TABLE, Profiler, "profiler", "known: {}")
    options = dict(_option(row, text) for text in pairs)
    if not {*row.defaults, *row.instead} & options.keys():
        options = {**options, **row.defaults}
    return row, options


def _wrapper(spec: str, layout: Layout, each: int, step: str) -> Wrapper:
    row, options = _row(spec)
    first = tuple(layout.rank(host, 0) * each for host in range(layout.nodes))
    chosen = options.pop("ranks", "")
    ranks = None if row.all_ranks else _ranks(chosen, layout.ranks * each) if chosen else first
    tasks = None if ranks is None else tuple(dict.fromkeys(rank // each for rank in ranks))
    out = FILE.replace("{name}", row.name)
    words = [*row.words, *(word.replace("{}", value) for option, value in options.items()
                           for word in row.options[option]), *row.last]  # fmt: skip
    filled = tuple(word.replace("{out}", out).replace("{step}", step) for word in words)
    variables = {key: value.replace("{step}", step) for key, value in row.variables.items()}
    if (row.name, options.get("cycles")) == ("horovod", "1"):
        variables["HOROVOD_TIMELINE_MARK_CYCLES"] = "1"
    variables |= _trace(row, options, ranks if each > 1 else None, step)
    needs = f"; requires {row.program} on PATH" if row.program else ""
    who = "all ranks" if ranks is None or len(ranks) == layout.ranks * each else f"rank {_in_short(ranks)}"
    return Wrapper(
        filled, tasks, variables, (Reason(filled[:2] or tuple(variables), f"{row.reason}, {who}{needs}"),),
        _size(row, options, len(ranks or (0,))), directories=(f"profile/{row.name}",),
    )  # fmt: skip


def _trace(row: Profiler, options: Mapping[str, str], ranks: Sequence[int] | None, step: str) -> dict[str, str]:
    """The variable in which the probe reads the options of a trace; nsys and ncu have a range of steps by torch's."""
    if not row.package and "steps" not in options:
        return {}
    settings: dict[str, Any] = {"output_dir": f"{step}/profile/{row.name}"}
    for option, value in options.items():
        if option == "steps":
            settings["steps"] = [int(number) for number in value.split("-")]
        elif option in _SECONDS:
            settings[option] = float(value)
        elif row.package:
            settings[option] = True
    if ranks is not None:
        settings["ranks"] = list(ranks)
    if not row.package:
        settings["range"] = True
    return {f"STACKYARD_TRACE_{(row.package or 'torch').upper()}": json.dumps(settings, separators=(",", ":"))}


def _size(row: Profiler, options: Mapping[str, str], ranks: int) -> tuple[Finding, ...]:
    """How much will be written, which for many ranks is more than a disk has. The amounts are of training on GPUs."""
    if not row.megabytes:
        return ()
    text = options.get(row.unit, "")
    first, _, last = text.partition("-")
    count = float(last or first or 0) - (float(first) if last else 0)
    who = f"{ranks} ranks" if ranks > 1 else "1 rank"
    if not text:
        each = (
            f"about {row.megabytes:g} MB for each second of the run" if row.unit == "duration" else "grow with the run"
        )
        known = ", ".join(option for option in ("steps", "duration") if option in row.options)
        return (
            Finding("profile-size", "note", f"{row.name}: traces of {who}, {each} and rank", "the end is not known",
                    f"limit it: {known}" if known else ""),
        )  # fmt: skip
    total = count * row.megabytes * ranks
    amount = f"{total / 1000:.1f} GB" if total >= 1000 else f"{max(1, round(total))} MB"
    severity: Any = "warning" if total >= MANY_MB else "note"
    return (
        Finding("profile-size", severity, f"{row.name}: traces of {who}, up to {amount} in the run directory",
                f"{count:g} {row.unit}, {row.megabytes:g} MB each with a GPU, a tenth without",
                "trace fewer ranks or less: ranks=0:" + row.unit + "=..." if severity == "warning" else ""),
    )  # fmt: skip


MANY_MB = 10_000
"""From here on the size of the traces is a warning."""

_ASK = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


def require(intent: Intent, environ: Mapping[str, str], *, probe: bool = True, look: str = "programs, modules") -> None:
    """Raise MissingError if a profiler is not there: its program on PATH, or its module in the program's Python.

    Raise InputError if it is one of those that the probe starts, and the probe is off.

    What runs in an image, or is not a Python program, is not checked.

    Args:
        environ: of the ranks, the stack's PATH included.
        probe: whether the site has it.
        look: for ``programs``, which login nodes often lack, for ``modules``, or for both.
    """
    for name in intent.roles:
        require(intent.of_role(name), environ, probe=probe, look=look)
    word = Path(intent.program[0]).name if intent.program else ""
    python = (
        intent.program[0] if word.startswith("python") else "python" if word.endswith(".py") or word == "-m" else ""
    )
    off = (
        "launch.probe of site.yaml"
        if not probe
        else "STACKYARD_PROBE"
        if environ.get("STACKYARD_PROBE") == "off"
        else ""
    )
    for spec in intent.profile:
        row, options = _row(spec)
        if off and _trace(row, options, None, ""):
            raise InputError(f"{spec} is started by the probe, which {off} turns off", hint=f"turn it on: see {off}")
        if intent.container:
            continue
        if row.program and "programs" in look and not which(row.program, environ):
            raise MissingError(
                f"{row.name}: {row.program} not found on PATH",
                hint=f"load its module, or add {row.program} to the stack; without it: leave out --profile {spec}",
            )
        if row.package and "modules" in look and python and which(python, environ):
            cwd = Path(intent.cwd) if intent.cwd else None
            done = run([python, "-c", _ASK, row.package], env=dict(environ), cwd=cwd, timeout_s=60, check=False)
            if done.returncode == 1:
                where = (
                    f"stack {intent.stack}" if intent.stack else f"the Python of this shell ({which(python, environ)})"
                )
                raise MissingError(
                    f"{row.name}: the module {row.package} was not found in {where}",
                    hint=f"add {row.package} to the stack, or leave out --profile {spec}",
                )


def _in_short(ranks: Sequence[int]) -> str:
    text = ", ".join(map(str, ranks[:8]))
    return f"{text} and {len(ranks) - 8} more" if len(ranks) > 8 else text


def _option(row: Profiler, text: str) -> tuple[str, str]:
    """One ``option=value``, checked."""
    option, sign, value = text.partition("=")
    known = ("ranks", *row.options)
    if option not in known or not sign or not value:
        raise InputError(f"{row.name}: no such option: {text}", hint=_known(option, known, "=..."))
    choices = row.choices.get(option, ())
    if choices and value not in choices:
        raise InputError(f"{row.name}: invalid value {option}={value}", hint=_known(value, choices))
    if option == "steps" and not _is_range(value):
        raise InputError(f"{row.name}: steps={value} is not a range of steps", hint="use e.g. steps=10-20: ten steps")
    if option in _SECONDS and not value.replace(".", "", 1).isdecimal():
        raise InputError(f"{row.name}: {option}={value} is not a number of seconds", hint=f"use e.g. {option}=30")
    return option, value


def _is_range(text: str) -> bool:
    """``10-20``: from step 10 to before step 20."""
    first, _, last = text.partition("-")
    return first.isdecimal() and last.isdecimal() and int(first) < int(last)


def _known(word: str, known: tuple[str, ...], tail: str = "") -> str:
    question = did_you_mean(word, known, shown=lambda name: name + tail)
    return f"{question} known: {', '.join(name + tail for name in known)}".lstrip()


def _ranks(text: str, ranks: int) -> tuple[int, ...]:
    """``all``, ``0,8`` or ``0-3``."""
    if text == "all":
        return tuple(range(ranks))
    chosen: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise InputError(
                f"ranks={text} is not a list of ranks", hint="use e.g. ranks=0,8 or ranks=0-3 or ranks=all"
            )
        chosen += range(int(first), int(last or first) + 1)
    if not chosen or max(chosen) >= ranks:
        raise InputError(f"ranks={text} is out of range: valid ranks are 0 to {ranks - 1}")
    return tuple(dict.fromkeys(chosen))
