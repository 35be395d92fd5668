"""Compiles many source files, one process per core. Run by the prefix's own interpreter: standard library only.

Standard input is one JSON object: {"workers": n, "tasks": [[target, source, name], ...]}; `name` is the
file name that the code carries (the import system replaces it). Prints a JSON list of the names that cannot be
compiled. With "count": file, that has the number of finished files, renewed about once a second.
"""

import ctypes
import json
import multiprocessing
import os
import py_compile
import sys
import time
import warnings
from typing import Iterable, List, Optional, Tuple  # noqa: UP035 - older interpreters run this too

_MODE = py_compile.PycInvalidationMode.UNCHECKED_HASH
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def compile_one(task: Tuple[str, str, str]) -> Optional[str]:  # noqa: UP006, UP045
    """Compile one file; returns None, or its name if it cannot be compiled (Python 2, templates, dangling links)."""
    target, source, name = task
    try:
        py_compile.compile(source, cfile=target, dfile=name, doraise=True, invalidation_mode=_MODE)
    except (py_compile.PyCompileError, SyntaxError, ValueError, RecursionError, FileNotFoundError, IsADirectoryError):
        return name
    return None


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def counting(results: Iterable[Optional[str]], place: str) -> List[Optional[str]]:  # noqa: UP006, UP045
    """All results, while their number is written to a file."""
    done, told = [], time.monotonic()
    with open(place, "w") as stream:  # noqa: PTH123 - as above
        for result in results:
            done.append(result)
            if time.monotonic() - told > 1:
                told = time.monotonic()
                stream.seek(0)
                stream.write(str(len(done)))  # never fewer digits than before
                stream.flush()
    return done


def main() -> None:
    """Compile all files named on standard input."""
    warnings.simplefilter("ignore")
    order = json.load(sys.stdin)
    tasks = order["tasks"]
    for directory in {task[0].rpartition("/")[0] for task in tasks}:
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - pathlib costs more than it helps in a start-up path
    results: List[Optional[str]]  # noqa: UP006, UP045
    if order["workers"] == 1:
        results = counting(map(compile_one, tasks), order.get("count", os.devnull))
    else:
        with multiprocessing.get_context("fork").Pool(order["workers"], _die_with_parent) as pool:
            results = counting(pool.imap(compile_one, tasks, chunksize=8), order.get("count", os.devnull))
    print(json.dumps([name for name in results if name]))


if __name__ == "__main__":
    main()
