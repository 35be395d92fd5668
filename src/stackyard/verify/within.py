"""Verifying a revision whose files are in an image: the checks run in a child, where the image is mounted.

Outside, only stubs are visible: what checks files would find none, and pass.

    python -m stackyard.verify.within FOLDER     carries out what `within` has written there
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from stackyard.errors import StackyardError
from stackyard.host.scratch import scratch
from stackyard.image.enter import run_within, staying_mounted
from stackyard.verify.report import Report
from stackyard.yard.record import BuildRecord

LIMIT_S = 6 * 3600.0


def within(record: BuildRecord, *asked: Any, **options: Any) -> Report:
    """`verify.verify` with these arguments, where the image of the record is mounted.

    Raises:
        MissingError: the image cannot be mounted on this machine.
        StackyardError: the checks could not be run.
    """
    with scratch("within") as work:
        (work / "asked").write_bytes(pickle.dumps((record, asked, options)))
        words = [sys.executable, "-m", __name__, str(work)]
        done = run_within(record.payload, words, timeout_s=LIMIT_S)
        if done.returncode:
            raise StackyardError(f"verifying {record.module} exited with status {done.returncode}", detail=done.output)
        return Report.from_json(json.loads((work / "report.json").read_text(encoding="utf-8")))


def _main(work: Path) -> None:
    from stackyard.verify.verify import verify

    record, asked, options = pickle.loads((work / "asked").read_bytes())
    if not record.payload.is_visible:
        raise StackyardError(f"{record.form.file} is not mounted on {record.prefix}")
    with staying_mounted(record.payload):
        report = verify(record, *asked, **options)
    (work / "report.json").write_text(json.dumps(report.to_json()), encoding="utf-8")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
