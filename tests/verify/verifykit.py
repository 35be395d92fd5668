"""Small real prefixes to verify: virtual environments with hand-made wheels, and conda-like directories."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from stackyard.inputs.models import Site
from stackyard.verify.report import CheckResult, Report
from stackyard.verify.verify import verify
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord
from support import stackrecords

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def make_wheel(
    directory: Path,
    name: str,
    files: Mapping[str, str | bytes],
    *,
    scripts: Mapping[str, str] | None = None,
    requires: Iterable[str] = (),
) -> Path:
    """A wheel of version 1.0 with these files and console scripts."""
    info = f"{name}-1.0.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    points = "".join(f"{key} = {value}\n" for key, value in (scripts or {}).items())
    members: dict[str, str | bytes] = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{points}",
    }
    record = "".join(f"{path},,\n" for path in (*members, f"{info}/RECORD"))
    wheel = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**members, f"{info}/RECORD": record}.items():
            archive.writestr(path, content)
    return wheel


@dataclass
class Stack:
    """A revision that was never built by the program: its prefix is made by hand, the rest is real."""

    yard: Yard
    record: BuildRecord

    @property
    def prefix(self) -> Path:
        return Path(self.record.prefix)

    @property
    def site_packages(self) -> Path:
        return self.prefix / "lib" / f"python{VERSION}" / "site-packages"

    def install(self, name: str, files: Mapping[str, str | bytes], **more: Any) -> None:
        """Make a wheel and install it with uv."""
        wheel = make_wheel(self.yard.root, name, files, **more)
        argv = [find_uv_bin(), "pip", "install", "-q", "--offline", "--no-deps", "--no-index"]
        subprocess.run([*argv, "--python", self.prefix / "bin" / "python", wheel], check=True)

    def change(self, **fields: Any) -> None:
        self.record = replace(self.record, **fields)

    def modules(self, site: Site | None = None) -> Path:
        """Write the generation, by the program's own writer."""
        return stackrecords.publish(self.yard, [stackrecords.entry(self.record)], [self.record], site=site)

    def verify(self, *only: str, site: Site | None = None, modules: Path | None = None, **more: Any) -> Report:
        directory = modules or self.modules(site)
        return verify(self.record, directory, site or Site(), only=only or None, **more)


def by_name(report: Report, kind: str) -> dict[str, CheckResult]:
    return {check.name: check for check in report.checks if check.kind == kind}
