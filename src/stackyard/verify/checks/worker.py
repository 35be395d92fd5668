"""Imports modules and looks up objects, one after the other, in the Python under test.

Run as ``python -c SOURCE TASKS JOURNAL``: standard library only, and compatible with Python 2.7, since a stack's
interpreter may be of any age; so without annotations. Every task is announced in the journal before it starts; so if a
module kills the process, the journal names it. An alarm with the default action kills a module that hangs, also in
compiled code.
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
    """Import ``module`` and look up ``attributes``; returns None, or the problem as plain values.

    A script starts with ``from module import first``, which also imports a submodule of that name; so does this.
    """
    try:
        target = importlib.import_module(task["module"])
        if task["attributes"]:
            __import__(task["module"], fromlist=[str(task["attributes"][0])])
        for name in task["attributes"]:
            target = getattr(target, name)
    except BaseException as error:
        frames = traceback.extract_tb(sys.exc_info()[2])
        text = "".join(traceback.format_exception_only(type(error), error)[-1:]).strip()
        missing = absent_module(error)
        return {
            "type": type(error).__name__,
            "message": " / ".join(line.strip() for line in text.splitlines() if line.strip())[:500],
            "missing": missing or absent_module_of_cause(error) or "",
            "handled": missing is None or not is_plain(error, missing),
            "file": frames[-1][0],
            "line": frames[-1][1],
        }
    return None


def absent_module(error):
    """The missing module, if that is the exception's cause, else None."""
    if type(error).__name__ == "ModuleNotFoundError":
        return getattr(error, "name", None)
    text = str(error)
    if type(error) is ImportError and sys.version_info[0] == 2 and text.startswith("No module named "):
        return text.rsplit(maxsplit=1)[-1]
    return None


def is_plain(error, missing):
    """Whether the message is the interpreter's own; a package with an optional module adds its own advice."""
    text = str(error)
    plain = "No module named " + repr(str(missing))
    return sys.version_info[0] == 2 or text == plain or text.startswith(plain + ";")


def absent_module_of_cause(error):
    """The missing module that made a package raise its own error, else None."""
    for _ in range(10):
        error = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
        if error is None:
            return None
        name = absent_module(error)
        if name:
            return name
    return None


def main(tasks_path, journal_path):
    """Run every task of the list and exit without exit handlers, which may hang after a partial import."""
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
