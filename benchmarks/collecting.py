"""``stackyard gc --dry-run`` of a yard with 200 revisions that hold ten million directory entries by their records.

Nothing is built: records, modulefiles and the files of each revision's note are all that the collection may look at.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.tools import scratch
from stackyard.inputs.workspace import Workspace

REVISIONS, ENTRIES, PACKAGES = 200, 10_000_000, 400
TARGET_S, TARGET_MIB = 5.0, 300.0


def measure(pairs: int = 5) -> list[Figure]:
    """Seconds and MiB of a dry run, each over what it is to stay under."""
    with scratch("gc") as directory:
        _make(directory / "yard")
        (directory / "site.yaml").write_text("modules: {formats: [tcl]}\nremoval: {keep: 0}\n")
        runs = [_run(directory) for _ in range(pairs)]
    took, memory = [seconds for seconds, _ in runs], [mib for _, mib in runs]
    what = f"gc --dry-run, {REVISIONS} revisions, {ENTRIES:,} entries"
    return [
        Figure(what, f"{TARGET_S:g} s", tuple(s / TARGET_S for s in took), 1.0, absolute=f"{max(took):.2f} s"),
        Figure(f"{what}, memory", f"{TARGET_MIB:g} MiB", tuple(m / TARGET_MIB for m in memory), 1.0,
               absolute=f"{max(memory):.0f} MiB"),
    ]  # fmt: skip


def _make(root: Path) -> None:
    """A yard of records: half of the revisions withdrawn, none with files of its own."""
    from stackyard.deploy.generation import Step
    from stackyard.deploy.published import rollback
    from stackyard.yard import disk
    from stackyard.yard.layout import Yard
    from stackyard.yard.revision import revisions
    from stackyard.yard.revision.record import PackageRecord
    from support import smallyard, stackrecords

    yard, made = Yard(root), []
    each = ENTRIES // REVISIONS
    use = disk.DiskUse("hardlink", 50_000_000, 9_000_000_000, each // 10, each - each // 10)
    for number in range(1, REVISIONS + 1):
        packages = [
            PackageRecord(f"package{at}", f"{number % 7}.{at}", "conda", "h0_0", sha256="0" * 64, size=10_000,
                          requires=("python >=3.11", "numpy >=1.26", "libstdcxx >=13"))
            for at in range(PACKAGES)
        ]  # fmt: skip
        record = stackrecords.record(yard, f"stack{number % 20}", "1.0", number, packages=packages)
        made.append(replace(record, disk=use, input_hash=str(number), created="2026-03-01T00:00:00+00:00"))
        revisions.mark(made[-1])
    smallyard.publish(yard, made)
    withdrawn = {record.module for record in made[::2]}
    rollback.publish(Workspace(smallyard.TCL, yard), lambda base: Step(tuple(
        replace(e, state="withdrawn") if e.module in withdrawn else e for e in base.entries
    ), "withdraw half"))  # fmt: skip


def _run(directory: Path) -> tuple[float, float]:
    """Seconds, and MiB at the most, of one dry run."""
    program = Path(sys.executable).with_name("stackyard")
    words = [program, "--site", directory / "site.yaml", "--yard", directory / "yard", "gc", "--dry-run"]
    started = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, used = os.wait4(child.pid, 0)
    taken = time.perf_counter() - started
    if status:
        raise SystemExit(f"gc exited with status {os.waitstatus_to_exitcode(status)}")
    usage: resource.struct_rusage = used
    return taken, usage.ru_maxrss / 1024
