"""The prefix's Python: the conda package's own, or a virtual environment on the host's or on one that uv manages."""

from __future__ import annotations

from pathlib import Path

from stackyard.core.errors import MissingError, StackyardError
from stackyard.host.files.hashing import sha256_file
from stackyard.host.tools import uv
from stackyard.lock.interpreter import install_again
from stackyard.make import programs
from stackyard.make.job import Job
from stackyard.make.wheels import indexes

# what uv writes for activating an environment by hand; here a module does that
_NOISE = (
    ".gitignore", "CACHEDIR.TAG", ".lock", "bin/activate", "bin/activate.bat", "bin/activate.csh", "bin/activate.fish",
    "bin/activate.nu", "bin/activate.ps1", "bin/activate.xsh", "bin/activate_this.py", "bin/deactivate.bat",
    "bin/pydoc.bat",
)  # fmt: skip


def prepare(job: Job) -> dict[str, str]:
    """Create the prefix's interpreter if needed; returns its entry in the record (empty: no Python).

    Raises:
        MissingError: the locked interpreter is not found on this machine.
        StackyardError: its hash differs from the lock.
    """
    locked = job.locked.interpreter
    if locked.source in ("host", "uv"):
        base = _checked(job)
        _virtual_environment(job, base)
        digest = sha256_file(base.resolve())
        return {"source": locked.source, "path": str(base), "version": locked.version, "sha256": digest}
    if not job.python_version:
        if job.locked.pip:
            raise StackyardError(f"{job.module} has pip packages but no Python", hint="add python to its packages")
        return {}
    if not job.python.exists():
        raise StackyardError(f"the conda package python {job.python_version} did not install {job.python}")
    package = next(p for p in job.locked.conda if p.name == "python")
    return {"source": "conda", "path": str(job.python), "version": package.version, "sha256": package.sha256}


def _checked(job: Job) -> Path:
    locked = job.locked.interpreter
    base = Path(locked.path)
    install_again(locked, job.yard.pythons)
    if not base.exists():
        raise MissingError(
            f"the Python that {job.module} was locked with not found: {base} ({locked.version})",
            hint="lock again here, or name the interpreter in the stack's `interpreter:`",
        )
    if locked.sha256 and sha256_file(base.resolve()) != locked.sha256:
        raise StackyardError(
            f"hash mismatch for {base}: {job.module} was locked with another Python {locked.version}",
            hint="lock again with `stackyard lock`: the host's Python was updated",
        )
    return base


def _virtual_environment(job: Job, base: Path) -> None:
    argv: programs.Argv = [
        uv.program(), "venv", "--python", base, "--no-project", "--allow-existing", "--no-python-downloads",
        "--prompt", job.variant.stack, job.prefix,
    ]  # fmt: skip
    what = f"creating the environment of {job.module}"
    programs.run(argv, what=what, log=job.paths.log, env=indexes.environment(job))
    for name in _NOISE:
        (job.prefix / name).unlink(missing_ok=True)
