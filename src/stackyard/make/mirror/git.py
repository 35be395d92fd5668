"""Git commits in a mirror, as bundles: one file each, which any account can fetch from and any web server can serve."""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.core.errors import MissingError, StackyardError
from stackyard.core.secrets import shown
from stackyard.host.files.scratch import scratch
from stackyard.host.net import gateway
from stackyard.host.run import command
from stackyard.host.run.command import CommandError
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.renewal import repository

_LIMIT_S = 3600
REF = "refs/heads/locked"
"""The branch of a bundle."""


def bundle(url: str, commit: str, target: Path, settings: PipSettings) -> None:
    """Write a commit of a repository, with its history, to a bundle.

    Raises:
        MissingError: git is not installed.
        StackyardError: it cannot be fetched, or it has submodules, which a bundle cannot hold.
    """
    if command.which("git") is None:
        raise MissingError(f"cannot fetch {shown(url)}: git not found on PATH", hint="install git")
    place = uv.place_for_uv(repository(url)[0], settings)
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch("bundle", target.parent) as work:

        def git(*words: str) -> command.Result:
            env = {**os.environ, **gateway.variables(os.environ)}
            return command.run(["git", "-C", str(work), *words], env=env, timeout_s=_LIMIT_S)

        def fetched(what: str) -> bool:
            try:
                git("fetch", "--quiet", place, what)
            except CommandError:
                return False
            return True

        try:
            git("init", "--quiet", "--bare", ".")
            if not fetched(commit):  # servers need not give out a commit by its hash
                git("fetch", "--quiet", "--tags", place, "+refs/heads/*:refs/remotes/origin/*")
            git("update-ref", REF, commit)
            if git("ls-tree", "--name-only", REF, ".gitmodules").stdout.strip():
                raise StackyardError(
                    f"{shown(url)} has submodules, which a mirror cannot hold",
                    hint="lock a source archive that has them (a release), or a local copy",
                )
            git("bundle", "create", "--quiet", str(work / "made.bundle"), REF)
        except CommandError as error:
            raise StackyardError(f"cannot fetch {shown(url)}: {error.message}", detail=error.detail) from error
        (work / "made.bundle").chmod(0o644)
        os.replace(work / "made.bundle", target)  # noqa: TID251  out of a scratch directory


def checked_out(bundled: Path, commit: str, into: Path) -> Path:
    """The files of a bundle's commit, checked out into an empty directory."""
    for words in (("init", "--quiet", "."), ("fetch", "--quiet", str(bundled), REF),
                  ("checkout", "--quiet", "--detach", commit)):  # fmt: skip
        command.run(["git", "-C", str(into), *words], timeout_s=_LIMIT_S)
    return into
