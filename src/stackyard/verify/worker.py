"""Imports modules and looks up objects, one after the other, inside the Python that is verified.

Run as ``python -c SOURCE TASKS JOURNAL``: plain standard library, and Python 2.7 too, since a stack's interpreter may
be of any age; so without annotations. Every task is announced in the journal before it starts; so when a module kills the process, the journal
names it. An alarm with the default action ends a module that hangs, also one that hangs in compiled code.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import importlib
import json
import os
import signal
import sys
import time
import traceback


def attempt(task):
    """Import ``module`` and look up ``attributes``; None, or what went wrong as plain values."""
    try:
        found = importlib.import_module(task["module"])
        for name in task["attributes"]:
            found = getattr(found, name)
    except BaseException as error:
        frames = traceback.extract_tb(sys.exc_info()[2])
        last = traceback.format_exception_only(type(error), error)[-1].strip()
        missing = getattr(error, "name", None) if type(error).__name__ == "ModuleNotFoundError" else None
        if missing is None and last.startswith("ImportError: No module named "):
            missing = last.split()[-1]
        return {
            "type": type(error).__name__,
            "message": last,
            "missing": missing or "",
            "file": frames[-1][0],
            "line": frames[-1][1],
        }
    return None


def main(tasks_path, journal_path):
    """Do every task of the list and leave without running exit handlers, which may hang after half an import."""
    with open(tasks_path) as stream:  # noqa: PTH123
        tasks = json.load(stream)
    journal = os.open(journal_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(*words):
        os.write(journal, (json.dumps(words) + "\n").encode("ascii"))

    for task in tasks:
        say("start", task["id"])
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, task["timeout_s"])
        begin = time.time()
        problem = attempt(task)
        signal.setitimer(signal.ITIMER_REAL, 0)
        say("end", task["id"], time.time() - begin, problem)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
