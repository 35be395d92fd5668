"""Calls a function of the Python API on a rank. A copy of this file is in the run directory, beside its input files.

    call/call-NAME.py             this program, with the name of the function
    call/call.json                the version of Python that pickled, and the directories in which modules are searched
    call/function.pkl             the function
    call/arguments.pkl the arguments of its calls; for task 3 of an array ``arguments-3.pkl``
    call/results/00000.pkl        what rank 0 returned, or its exception; of task 3 of an array in ``results-3``

It runs in the Python of the ranks, which has cloudpickle and not necessarily this package. A result is written under
another name and then renamed, so that it is complete or missing.
"""

import json
import os
import pickle
import sys
import traceback
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

HERE = Path(__file__).resolve().parent


class UnusableResult(Exception):
    """Why the result is missing, although the function did not fail. `hint`: the remedy."""

    def __init__(self, message: "str", hint: "str" = "") -> "None":
        super().__init__(message)
        self.hint = hint


def main() -> "int":
    """Call the function and store its result or exception; returns the exit status of the rank."""
    suffix = _suffix(Path(os.environ.get("STACKYARD_STEP", "")))
    rank = int(os.environ.get("RANK") or os.environ.get("STACKYARD_TASK") or 0)
    file = HERE / f"results{suffix}" / f"{rank:05d}.pkl"
    about: dict[str, Any] = {
        "rank": rank,
        "ranks": int(os.environ.get("WORLD_SIZE") or 1),
        "host": os.uname().nodename,
    }
    about["attempt"] = int(os.environ.get("STACKYARD_ATTEMPT") or 1)
    try:
        result, code = {"ok": True, "values": _called(suffix)}, 0
    except UnusableResult as error:
        sys.stderr.write(f"stackyard: {error}\n")
        result, code = {**_failure(error, None), "error": b"", "kind": "", "hint": error.hint}, 1
    except BaseException as error:  # an exit or an interrupt too, since the caller waits for a result
        result, code = _failure(error, _below(error)), _status(error)
        sys.stderr.write(str(result["text"]))
    _write(file, pickle.dumps({**about, **result}, protocol=4))
    return code


def _suffix(step: "Path") -> "str":
    """The suffix of file names for a task of an array; empty for any other run."""
    return f"-{step.name}" if step.parent.name == "array" else ""


def _called(suffix: "str") -> "bytes":
    """The results of the calls, as a pickled list."""
    cloudpickle = _prepared()
    try:
        function = pickle.loads((HERE / "function.pkl").read_bytes())
        calls = pickle.loads((HERE / f"arguments{suffix}.pkl").read_bytes())
    except Exception as error:
        hint = "install the module there, or send it: cloudpickle.register_pickle_by_value(MODULE)"
        message = f"cannot load the function: {type(error).__name__}: {error}"
        raise UnusableResult(message, hint if isinstance(error, ImportError) else "") from error
    values = [function(*args, **kwargs) for args, kwargs in calls]
    try:
        return bytes(cloudpickle.dumps(values))
    except Exception as error:
        message = f"cannot pickle what the function returned: {type(error).__name__}: {error}"
        raise UnusableResult(message, "return plain values, or write them to a file and return its path") from error


def _prepared() -> "Any":
    """The module cloudpickle, after checking that this Python can run the function."""
    spec = json.loads((HERE / "call.json").read_text(encoding="utf-8"))
    version, own = ".".join(map(str, spec["python"])), "{}.{}".format(*sys.version_info)
    if own != version:
        message = f"the function was pickled by Python {version}, and {sys.executable} is Python {own}"
        raise UnusableResult(message, "use the same version on both sides: byte code differs")
    sys.path[:1] = spec["path"]
    try:
        import cloudpickle
    except ImportError:
        raise UnusableResult(
            f"cloudpickle not found in {sys.executable}", "add cloudpickle to that environment"
        ) from None
    return cloudpickle


def _below(error: "BaseException") -> "TracebackType | None":
    """The traceback without the lines of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _failure(error: "BaseException", trace: "TracebackType | None") -> "dict[str, Any]":
    """An exception as plain values, and pickled if possible."""
    text = "".join(traceback.format_exception(type(error), error, trace))
    try:
        import cloudpickle

        data = cloudpickle.dumps(error)
    except Exception:
        data = b""
    return {"ok": False, "error": data, "kind": type(error).__name__, "message": str(error), "text": text, "hint": ""}


def _status(error: "BaseException") -> "int":
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) and 0 < code < 256 else 1


def _write(file: "Path", content: "bytes") -> "None":
    """Write a file atomically, readable for its owner only."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(file)


if __name__ == "__main__":
    sys.exit(main())
