"""Libraries that say they are an MPI, for the analysis of files: real ELF files with the texts that real ones have."""

from __future__ import annotations

from pathlib import Path

from images.elfbed import build, function

TEXTS = {
    "openmpi": 'const char ompi_version_string[] = "{0}"; const char *mark(void) {{ return "Open MPI v%d.%d.%d"; }}',
    "mpich": 'const char MPII_Version_string[] = "{0}"; const char *mark(void) {{ return "MPICH Version:      %s"; }}',
    "cray": 'const char *mark(void) {{ return "MPI VERSION    : CRAY MPICH version {0} (ANL base 3.4a2)"; }}',
}


def mpi(
    path: Path, family: str, version: str, *, soname: str = "", needs: tuple[Path, ...] = (), **options: str
) -> Path:
    """An MPI's library."""
    calls = "".join(f"int {function(each)}(void);" for each in needs)
    body = " + ".join(("1", *(f"{function(each)}()" for each in needs)))
    source = f"{calls} int {function(path)}(void) {{ return {body}; }} " + TEXTS[family].format(version)
    return build(path, source=source, needs=needs, soname=soname, **options)  # type: ignore[arg-type]
