"""Imports modules in a stack's own Python and prints what that took; runs as ``python -c``, with the standard library.

Words: the modules, separated by commas (empty: the first of `KNOWN` that is installed), and how: ``time`` measures this
process, ``trace`` counts names in a second one under strace, or here those that Python tells of. The output is one line
of JSON after `MARK`. Runs in Python 3.6 and newer.
"""

import os
import re
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is not imported: it would be measured too
    from collections.abc import Iterable
    from typing import Any

KNOWN = ("torch", "tensorflow", "jax", "numpy")
MARK = "stackyard-imports "
CALL = re.compile(rb"^(?:\d+ +)?(\w+)\((?:(?:AT_FDCWD|\d+)(?:<((?:[^>\\]|\\.)*)>)?(?:, )?)?(?:\"((?:[^\"\\]|\\.)*)\")?")
BOOTTIME = 7  # which Python names from 3.7 on
SEEN_BY_AUDIT = ("open", "os.listdir", "os.scandir")


def names_of(lines: "Iterable[bytes]") -> "tuple[set[str], int]":
    """The paths in the lines of ``strace -f -y -e %file,getdents64``, and the number of calls with one."""
    names: set[str] = set()
    calls = 0
    for line in lines:
        call = CALL.match(line)
        if not call or b" resumed>" in line[:60]:
            continue
        directory, path = call.group(2) or b"", call.group(3)
        if path is None and not call.group(1).startswith(b"getdents"):
            continue
        if path == b"":  # of an open file
            continue
        calls += 1
        names.add(os.path.join(directory, path or b"").decode("utf-8", "replace"))
    return names, calls


def with_parents(names: "Iterable[str]") -> "set[str]":
    """All names that a look-up asks for: the paths and each directory above them."""
    found: set[str] = set()
    for name in names:
        path = os.path.normpath(name)
        while path.startswith("/") and path != "/" and path not in found:
            found.add(path)
            path = os.path.dirname(path)
    return found


def mounts(text: "str") -> "dict[str, str]":
    """The kind of file system of each mount point, from the text of a mountinfo; the last one covers earlier ones."""
    found = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal.group(1), 8)), before.split()[4])
        found[point] = after.split()[0]
    return found


def kind_of(path: "str", table: "dict[str, str]") -> "str":
    """The kind of file system that a path is on."""
    while path not in table and path not in ("/", ""):
        path = os.path.dirname(path)
    return table.get(path or "/", "unknown")


def by_file_system(names: "Iterable[str]") -> "tuple[dict[str, int], str]":
    """How many of the names are on each kind of file system, as this process sees it."""
    with open("/proc/self/mountinfo") as stream:
        table = mounts(stream.read())
    found: dict[str, int] = {}
    for name in with_parents(names):
        kind = kind_of(name, table)
        found[kind] = found.get(kind, 0) + 1
    return found, kind_of(os.path.realpath(sys.prefix), table)


def import_all(modules: "list[str]") -> "list[str]":
    """Import them; those that were imported."""
    if not modules:
        from importlib.util import find_spec

        modules = [name for name in KNOWN if find_spec(name)][:1] or sys.exit(f"none of {', '.join(KNOWN)} found")
    for name in modules:
        __import__(name)
    return modules


def cost(modules: "list[str]") -> "dict[str, Any]":
    """Import the modules; the seconds since this process started, those of its processors, and its bytes."""
    modules = import_all(modules)
    with open("/proc/self/stat") as stream:
        started = int(stream.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    seconds = time.clock_gettime(BOOTTIME) - started
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    files = mapped()
    waited_ns, read = word("/proc/self/schedstat"), word("/proc/self/io")
    return {
        "modules": modules, "seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime, "read_bytes": read,
        "waited_s": None if waited_ns is None else waited_ns / 1e9,
        "mapped_bytes": sum(files.values()), "host": os.uname()[1],
    }  # fmt: skip


def word(path: "str") -> "int | None":
    """The second number of a file of the kernel's; None where it has no such file."""
    try:
        with open(path) as stream:
            return int(stream.readline().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def mapped() -> "dict[str, int]":
    """The files that are mapped into this process, with their sizes: shared libraries, which are not read by calls."""
    found = {}
    with open("/proc/self/maps") as stream:
        for line in stream:
            path = line.split(None, 5)[5:]
            if path and path[0].startswith("/"):
                name = path[0].rstrip("\n")
                if os.path.exists(name):
                    found[name] = os.path.getsize(name)
    return found


def audited(modules: "list[str]") -> "dict[str, Any]":
    """The cost, with the names that Python itself tells of: neither what it asks by stat nor the loader's search."""
    names: set[str] = set()

    def note(event: "str", arguments: "tuple[Any, ...]") -> "None":
        if event in SEEN_BY_AUDIT and arguments and isinstance(arguments[0], str):
            names.add(os.path.abspath(arguments[0]))

    if hasattr(sys, "addaudithook"):  # from Python 3.8 on; before, only what is mapped is known
        sys.addaudithook(note)
    result = cost(modules)
    names.update(mapped())
    kinds, own = by_file_system(names)
    return dict(result, names=sum(kinds.values()), file_systems=kinds, file_system=own, calls=None, counted_by="audit")


def traced(words: "list[str]") -> "dict[str, Any] | None":
    """The cost of the same in a second process under strace, with all names that it asks for; None if it cannot be."""
    import json
    import shutil
    import subprocess

    strace = shutil.which("strace")
    if strace is None:
        return None
    reading, writing = os.pipe()
    command = [strace, "-f", "-qq", "-y", "-s", "4096", "-e", "trace=%file,getdents64", "-o", f"/dev/fd/{writing}"]
    child = subprocess.Popen(
        command + words, pass_fds=(writing,), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        names, calls = names_of(stream)
    out, _ = child.communicate()
    if child.returncode or MARK not in out or not names:
        return None
    kinds, own = by_file_system(names)
    result = json.loads(out.rpartition(MARK)[2].splitlines()[0])
    return dict(result, names=sum(kinds.values()), file_systems=kinds, file_system=own, calls=calls,
                counted_by="strace")  # fmt: skip


def main() -> "None":
    """Carry out what the words ask for."""
    chosen, how = sys.argv[1:3]
    modules = [name for name in chosen.split(",") if name]
    if how == "time":
        result = cost(modules)
    else:
        with open("/proc/self/cmdline") as stream:
            words = stream.read().split("\0")[:-1]
        result = traced([sys.executable, *words[1:-1], "time"]) or audited(modules)
    import json

    sys.stdout.write(MARK + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
