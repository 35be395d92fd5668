"""The requirements of a layer's own packages, compared with what its Python finds in the layer and behind it."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stackyard.host.run import command
from stackyard.verify.checks.layered import Finding, find
from stackyard.yard.kinds.payload import Prefix


def installed(directory: Path, name: str, version: str, *needs: str) -> None:
    info = directory / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    (info / "METADATA").write_text("\n".join([*lines, "", "Requires-Dist: not-a-field"]))


def found(prefix: Path, python: str | Path, *search: Path) -> Finding:
    """What a Python finds that has these directories on its PYTHONPATH."""
    own = (prefix / "own",) if (prefix / "own").exists() else ()
    context: Any = SimpleNamespace(
        python=SimpleNamespace(path=python, site_packages=own), payload=Prefix(prefix), work=prefix, run=command.run,
        environ={**os.environ, "PYTHONPATH": ":".join(map(str, search))},
    )  # fmt: skip
    return find(context)


def test_only_its_own_packages_are_judged_and_by_what_comes_first(tmp_path: Path) -> None:
    own, base = tmp_path / "own", tmp_path / "base"
    installed(
        own, "asked", "1.0", "Some_Lib>=2", "absent", "old>=3", "other ; python_version < '3'", "extra ; extra == 'x'"
    )
    (base / "absent-3.0.dist-info").mkdir(parents=True)  # its metadata is lost
    installed(own, "beside", "2.0", "asked==1.0")
    installed(own, "Some.Lib", "2.5")
    installed(base, "some_lib", "1.0")
    installed(base, "old", "1.0", "nowhere-to-be-found")
    seen = found(tmp_path, sys.executable, own, base)
    assert (seen.count, seen.unsearched) == (3, ())
    assert seen.problems == [
        ("asked", "asked 1.0 requires absent, but it is not installed"),
        ("asked", "asked 1.0 requires old>=3, but old 1.0 is installed"),
    ]


def test_packages_where_its_python_does_not_look_are_not_found(tmp_path: Path) -> None:
    other = tmp_path / "lib" / "python2.9" / "site-packages"
    installed(other, "alone", "1.0")
    seen = found(tmp_path, sys.executable)
    assert (seen.count, seen.unsearched, seen.problems) == (1, (str(other),), [])
    assert found(tmp_path, sys.executable, other).unsearched == ()


def test_a_python_that_skips_site_packages_is_found(tmp_path: Path) -> None:
    """As with -S in a wrapper of the interpreter: no .pth file and no site-packages count."""
    venv.create(tmp_path / "layer", symlinks=True)
    (own,) = Prefix(tmp_path / "layer").package_directories
    installed(own, "alone", "1.0")
    python = tmp_path / "layer" / "bin" / "python"
    assert found(tmp_path / "layer", python).unsearched == ()
    without = tmp_path / "python-s"
    without.write_text(f'#!/bin/sh\nexec {python} -S "$@"\n')
    without.chmod(0o755)
    assert found(tmp_path / "layer", without).unsearched == (str(own),)


def test_a_package_that_another_one_hides_is_named(tmp_path: Path) -> None:
    own, before = tmp_path / "own", tmp_path / "before"
    installed(own, "one", "2.0")
    installed(before, "One", "1.0")
    ((name, text),) = found(tmp_path, sys.executable, before, own).problems
    assert name == "one" and text == f"one 2.0 is in {own}, but Python finds the one in {before}"
