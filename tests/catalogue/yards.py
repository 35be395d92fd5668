"""Yards to make catalogues of: published by the real code, with records and reports made by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stackyard.deploy import generation
from stackyard.deploy.generation import Step
from stackyard.deploy.published import names
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.verify.report import CheckResult, Report
from stackyard.yard.disk import DiskUse
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, PackageRecord
from stackyard.yard.write import atomic
from support import stackrecords
from support.smallyard import TCL

COMMON = {
    "python": ("3.12.4", "Python-2.0"), "numpy": ("2.1.3", "BSD-3-Clause"), "openssl": ("3.3.2", "Apache-2.0"),
    "zlib": ("1.3.1", "Zlib"), "cuda-version": ("12.6", "LicenseRef-NVIDIA"), "nccl": ("2.23.4", "BSD-3-Clause"),
    "openmpi": ("5.0.6", "BSD-3-Clause"), "libblas": ("3.9.0", ""), "scipy": ("1.14.1", "BSD-3-Clause"),
    "pandas": ("2.2.3", "BSD-3-Clause"), "pyyaml": ("6.0.2", "MIT"), "requests": ("2.32.3", "Apache-2.0"),
    "tqdm": ("4.67.0", "MPL-2.0 AND MIT"), "pillow": ("11.0.0", "HPND"), "h5py": ("3.12.1", "BSD-3-Clause"),
}  # fmt: skip
PIP = ("horovod", "deepspeed", "ray", "flax", "optax")
STACKS: Mapping[str, tuple[str, Mapping[str, Mapping[str, str]]]] = {
    "pytorch": ("PyTorch with Horovod, DeepSpeed and Ray for training on many nodes", {
        "2.4.1": {"pytorch": "2.4.1", "horovod": "0.28.1", "deepspeed": "0.15.1", "python": "3.11.9"},
        "2.5.1": {"pytorch": "2.5.1", "horovod": "0.28.1", "deepspeed": "0.15.4", "ray": "2.39.0"},
        "2.6.0": {"pytorch": "2.6.0", "horovod": "0.28.1", "deepspeed": "0.16.2", "ray": "2.40.0"},
    }),
    "tensorflow": ("TensorFlow with Keras 3 and Horovod", {
        "2.16.2": {"tensorflow": "2.16.2", "keras": "3.6.0", "horovod": "0.28.1", "python": "3.11.9"},
        "2.18.0": {"tensorflow": "2.18.0", "keras": "3.7.0", "horovod": "0.28.1"},
    }),
    "jax": ("JAX, Flax and Optax", {"0.4.35": {"jax": "0.4.35", "flax": "0.10.2", "optax": "0.2.4"}}),
    "rapids": ("Data frames and machine learning on GPUs", {"24.10": {"cudf": "24.10.1", "cuml": "24.10.0"}}),
}  # fmt: skip
SITE = TCL.model_copy(update={"name": "Software on Meridian", "summary": "What the staff of the cluster keep for you"})


def package(name: str, version: str, licence: str = "MIT") -> PackageRecord:
    """A package of pip or of conda, by its name."""
    kind: Any = "pip" if name in PIP else "conda"
    return PackageRecord(name, version, kind, "" if kind == "pip" else "h1_0", licence=licence)


def revision(
    yard: Yard, stack: str, version: str, packages: Iterable[PackageRecord], *, asked: Iterable[str] = (),
    checks: Iterable[CheckResult] = (), number: int = 1, **more: Any,
) -> BuildRecord:  # fmt: skip
    """A built revision with its lock and its report."""
    day = int(hashlib.sha256(f"{stack}/{version}".encode()).hexdigest(), 16) % 27 + 1
    record = stackrecords.record(yard, stack, version, number, packages=tuple(packages), **more)
    record = replace(
        record, created=f"2026-{number % 11 + 1:02d}-{day:02d}T09:12:33+00:00",
        input_hash=hashlib.sha256(record.module.encode()).hexdigest(),
        disk=DiskUse("hardlink", 400_000_000, 6_300_000_000, 1200, 84_211),
        interpreter={"source": "conda", "version": "3.12.4"},
    )  # fmt: skip
    paths = RevisionPaths.of(record.path)
    paths.lock.parent.mkdir(parents=True, exist_ok=True)
    head = f'format = 1\nstack = "{stack}"\n\n[[variant]]\nversion = "{version}"\n'
    paths.lock.write_text(f'{head}requested = {json.dumps(list(asked))}\n\n[[conda]]\nref = "x"\n')
    report = Report(record.module, record.input_hash, record.created, checks=tuple(checks))
    if checks:
        atomic.write_json(paths.report, report.to_json(), checked=True)
    revisions.mark(record)
    return record


def publish(yard: Yard, entries: Iterable[Entry], site: Site = SITE) -> None:
    """Publish these beside what is published; an entry of a known module replaces it."""
    new = {entry.module: entry for entry in entries}

    def step(base: generation.Base) -> Step:
        old = {entry.module: entry for entry in base.entries}
        return Step(names.claim({**old, **new}.values()), f"deploy {', '.join(new)}")

    with generation.draft(Workspace(site, yard)) as draft:
        draft.publish(step)


def entry(record: BuildRecord, **more: Any) -> Entry:
    """The entry of a record."""
    return stackrecords.entry(record, input_hash=record.input_hash, **more)


def passed(failed: int = 0) -> list[CheckResult]:
    """The checks of a revision, as a verification leaves them."""
    imports = [CheckResult("import", f"m{n}", "passed") for n in range(61)]
    own = [CheckResult("own", f"test {n}", "failed" if n < failed else "passed") for n in range(3)]
    return [CheckResult("load", "Lmod", "passed"), *imports, CheckResult("library", "all", "passed"), *own]


def demo(root: Path, *stacks: str, site: Site = SITE) -> Yard:
    """A yard as a site has it: some stacks, one version retired, one whose check failed."""
    yard, entries = Yard(root), []
    for stack, (summary, versions) in STACKS.items():
        for number, (version, main) in enumerate(versions.items()) if stack in (stacks or STACKS) else ():
            found = {**COMMON, **{name: (text, "Apache-2.0") for name, text in main.items()}}
            packages = [package(name, *facts) for name, facts in found.items()]
            packages += [package(f"lib{n:02d}", f"1.{n % 7 + (n % 9 == number)}.{n % 4}") for n in range(40)]
            asked = [*(f"{name} {text}" for name, text in main.items()), "python >=3.11", "pip: numpy>=2"]
            record = revision(
                yard, stack, version, packages, asked=asked, checks=passed(failed=stack == "rapids"), variant="py312",
                summary=summary, axes={"python": "3.12", "accelerator": "cu126"},
            )  # fmt: skip
            more: dict[str, Any] = {"url": "https://pytorch.org"} if stack == "pytorch" else {}
            if record.module == "pytorch/2.4.1-py312-1":
                more |= {"retired": "2027-03-01", "successor": "pytorch/2.6.0"}
            more |= {"state": "failed"} if stack == "rapids" else {}
            entries.append(entry(record, **more))
    publish(yard, entries, site)
    return yard
