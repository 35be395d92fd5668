"""Real ELF files for tests, compiled by gcc: libraries that need each other, with RPATH, RUNPATH and versions."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

OWN = ("libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "ld64.so.2")


def build(
    target: Path,
    *,
    source: str = "",
    needs: tuple[Path, ...] = (),
    rpath: str = "",
    runpath: str = "",
    version: str = "",
    soname: str = "",
    program: bool = False,
) -> Path:
    """One shared library or program at `target`.

    Args:
        source: C text; empty: a function named after the library, that calls those of all it needs.
        needs: files that it is linked to.
        version: the symbol version of what it exports.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.parent / f".{target.name}.c"
    calls = "".join(f"int {function(each)}(void);" for each in needs)
    body = " + ".join(("1", *(f"{function(each)}()" for each in needs)))
    name = "main" if program else function(target)
    work.write_text(source or f"{calls} int {name}(void) {{ return {body}; }}")
    words = ["gcc", "-o", target, work, "-Wl,--no-as-needed"]
    words += [] if program else ["-shared", "-fPIC", f"-Wl,-soname,{soname or target.name}"]
    words += [f"-Wl,-rpath,{rpath}", "-Wl,--disable-new-dtags"] if rpath else []
    words += [f"-Wl,-rpath,{runpath}", "-Wl,--enable-new-dtags"] if runpath else []
    if version:
        script = work.with_suffix(".map")
        script.write_text(f"{version} {{ global: {function(target)}; }};")
        words += [f"-Wl,--version-script={script}"]
    words += ["-Wl,--allow-shlib-undefined", *needs]
    subprocess.run(words, check=True, capture_output=True)
    work.unlink()
    work.with_suffix(".map").unlink(missing_ok=True)
    return target


def function(path: Path) -> str:
    """The one function of a library."""
    return path.name.split(".")[0].replace("-", "_").replace("+", "x") + "_f"


def loaded_by_system(program: Path, **environ: str) -> dict[str, str]:
    """What this machine's own loader loads for a program: library to path (``LD_TRACE_LOADED_OBJECTS``, as ldd)."""
    done = subprocess.run(
        [program], env={"LD_TRACE_LOADED_OBJECTS": "1", **environ}, capture_output=True, text=True, check=True
    )
    pairs = (line.split(" => ") for line in done.stdout.splitlines() if " => " in line)
    return {name.strip(): path.rsplit(" (", 1)[0] for name, path in pairs}


def names(found: Mapping[str, str]) -> dict[str, str]:
    """Without the C library's own files."""
    return {name: path for name, path in found.items() if name not in OWN}
