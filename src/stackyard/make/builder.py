"""Builds a finished prefix at its final path from a locked variant, and its record, which the caller writes last.

Until the record is written (`yard.revision.revisions.mark`), the revision's directory holds a lease, ``building``, and
is not listed: if the process with the lease has ended, the next build of the revision removes the prefix and starts
again. Fetched, compiled and unpacked files are in the caches, so that is quick.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.change import EnvironmentChange, SetRestorable
from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.core.progress import Progress
from stackyard.host.files import space
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.make.hashes.inputs import BUILD_FORMAT, input_hash, is_build_of
from stackyard.make.job import Job
from stackyard.make.wheels.recorded import packages_of
from stackyard.yard import disk, formats
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.layout import Yard
from stackyard.yard.revision.collision import Collision, sentences
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import (
    Activation,
    BuildRecord,
    now,
    read_record,
)
from stackyard.yard.write import atomic, lease
from stackyard.yard.write.lease import Lease

if TYPE_CHECKING:
    from stackyard.inputs.models import Check, Site, Variant
    from stackyard.make.tools import Tool
    from stackyard.make.wheels.cached import CompiledWheel
    from stackyard.make.wheels.install import Wheel

__all__ = ["build", "input_hash", "is_build_of"]


def build(
    variant: Variant,
    locked: LockedVariant,
    site: Site,
    yard: Yard,
    paths: RevisionPaths,
    module: str,
    revision: int,
    progress: Progress,
    *,
    licences: Sequence[Mapping[str, Any]] = (),
    rebuild: bool = False,
) -> BuildRecord:
    """Build one revision into `paths`. Its record is returned and not written: the payload may still be packed.

    Args:
        module: the name that users will load.
        licences: the acceptances for it, for the record.
        rebuild: do not trust caches: compare every linked byte, and compile every wheel again.

    Returns:
        The record; the written one if this very build was marked before.

    Raises:
        MissingError: a host tool, module or interpreter was not found; the build has not started.
        StackyardError: a step failed; the log of the revision has the whole output, and the caches keep intermediate
            results.
    """
    digest = input_hash(variant, locked, site)
    if disk.is_there(paths.record):
        return _finished(paths, digest)
    from stackyard.yard.write.permissions import applied

    job = Job(site, yard, variant, locked, paths, module, progress, deep=rebuild, rebuild=rebuild)
    with applied(job.policy, yard.root, yard.cache, paths.root):
        own_lease = _begin(job, digest)
        try:
            with atomic.together():
                record = _Steps(job).run()
        except BaseException as error:
            if isinstance(error, disk.DiskFull) or space.is_full(error):
                with suppress(OSError):
                    _clear(job)
            own_lease.release()
            raise
    return replace(record, revision=revision, input_hash=digest, licences=tuple(licences))


def _finished(paths: RevisionPaths, digest: str) -> BuildRecord:
    record = read_record(paths.record)
    if record.input_hash != digest:
        raise StackyardError(
            f"{record.module} was built from other inputs; a published revision never changes",
            hint="deploy again: the build becomes the next revision",
        )
    return record


def _begin(job: Job, digest: str) -> Lease:
    """Take the lease on the build directory, and remove leftovers of a killed or failed build."""
    own_lease = lease.occupy(job.paths.building, job.module, {"module": job.module, "input_hash": digest})
    if own_lease is None:
        raise StackyardError(
            f"cannot build {job.module}: another process began to: {lease.latest(job.paths.building)}",
            hint="deploy again: the build becomes the next revision",
        )
    _clear(job)
    job.paths.log.unlink(missing_ok=True)
    return own_lease


def _clear(job: Job) -> None:
    for path in (job.prefix, job.work, job.paths.image, job.paths.launcher, *disk.leftovers(job.paths.root)):
        disk.remove_tree(path, job.paths.yard)


def _settle(job: Job) -> None:
    """Set permissions of the built files by the yard's policy, independent of the owner's umask.

    Files linked from a cache already have the permissions of that cache's yard.
    """
    from stackyard.yard.write.permissions import settle

    for part in (job.prefix, job.paths.recipe, job.paths.lock.parent, job.paths.log):
        if part.exists():
            settle(part, job.policy, linked=False, top=job.paths.yard)


class _Steps:
    """The steps of one build in their order, with their times."""

    def __init__(self, job: Job) -> None:
        from stackyard.make.collisions.settle import BuildCollisions

        self.job = job
        self.timings: dict[str, float] = {}
        self.notices: list[str] = [*job.variant.notices, *job.locked.notices]
        self.kept: dict[str, str] = {}
        self.settling = BuildCollisions(job)
        self.collisions: tuple[Collision, ...] = ()
        self.installed: list[Wheel] = []

    def run(self) -> BuildRecord:
        """Run all steps; the record lacks only the caller's part."""
        from stackyard.make import interpreter, layer, logins, recipe, seal
        from stackyard.make.wheels import install as pip
        from stackyard.make.wheels import toolchain

        job = self.job
        if job.variant.adopted:
            return self._adopt(job.variant.adopted)
        logins.learn(job)
        with self._phase("tools"):
            chain = toolchain.prepare(job)
        # the ground is an empty prefix, or for an extension the one that it extends
        job.work.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.kept = recipe.keep(job)
        ground = layer.ground(job)
        python = ground.prepare(job)
        if job.locked.conda:
            from stackyard.make.conda import install as conda

            with self._phase("conda", counted(len(job.locked.conda), "package")):
                with self._explained():
                    conda.install(job)
                self.settling.conda()
                ground.link_libraries(job)
        with self._phase("interpreter"):
            python = python or interpreter.prepare(job)
        # wheels before sources: a package that is compiled may need them to build
        locked_wheels = pip.locked_wheels(job)
        with self._phase("pip", counted(len(locked_wheels), "package")):
            self._install(locked_wheels)
        compiled: list[CompiledWheel] = []
        if any(p.kind != "wheel" for p in job.locked.pip):
            from stackyard.make.wheels import compile as wheels

            with self._phase("compile"):
                chain = toolchain.complete(job, chain)
                compiled = wheels.compile_all(job, chain, self._install)
                self.notices += [note for wheel in compiled for note in wheel.notes]
        # from here on the files are final: what runs once after installation has run
        activation = self._activate([*locked_wheels, *(c.wheel for c in compiled)])
        with self._phase("seal"):
            ground.finish(job)
            seal.seal(job, python)
            disk.delete_tree(job.work, job.paths.yard)
            _settle(job)
            files, tree = seal.close(job)
            use = disk.measure(tree.values(), disk.mode_of(sharing_samples(job), job.paths.root))
        return replace(self._record(python, chain.tools, compiled, activation, use), files_sha256=files)

    def _adopt(self, prefix: AdoptedPrefix) -> BuildRecord:
        """The record of a third-party prefix: lock, activation and a list of its files; nothing is added to it."""
        from stackyard.make import adopted as foreign
        from stackyard.make import recipe, seal
        from stackyard.make.collisions import observed

        job = self.job
        self.kept = recipe.keep(job)
        with self._phase("activation"):
            activation = captured(job, Path(prefix.prefix))
        with self._phase("files"):
            use = foreign.note(job, prefix)
            if job.variant.image == "squashfs":
                foreign.note_original(job, prefix)
            _settle(job)
            files, _ = seal.close(job)
            self.collisions = observed.observed(Path(prefix.prefix))
        for text in sentences(self.collisions):
            job.progress.notice(text)
        record = self._record(foreign.interpreter(job, prefix), {}, (), activation, use)
        record = replace(record, prefix=prefix.prefix, adopted=prefix, files_sha256=files)
        return foreign.as_image(job, record) if job.variant.image == "squashfs" else record

    def _install(self, wheels: Sequence[Wheel]) -> None:
        """Install wheels, and resolve their file collisions with other packages."""
        from stackyard.make.wheels import install as pip

        self.installed += wheels
        with self._explained():
            pip.install(self.job, wheels)
        self.settling.settle(self.installed)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Within the ``with`` block, explain an installer's failure by the two packages in conflict, if any."""
        try:
            yield
        except StackyardError as error:
            self.settling.explain(error, self.installed)
            raise

    def _activate(self, wheels: Sequence[Wheel]) -> Activation:
        """Capture the activation, run the post script in it, compile the bytecode; capture again after a script."""
        from stackyard.make import onhost, post
        from stackyard.make.bytecode import cache as bytecode

        with self._phase("activation"):
            activation = captured(self.job)
        touched: list[str] = []
        if self.job.variant.post:
            with self._phase("post", Path(self.job.variant.post).name):
                touched = post.run(self.job, activation.change)
                activation = captured(self.job)
        if self.job.variant.on_host:
            onhost.write(self.job.payload.program_directories[0], self.job.variant.on_host)
        with self._phase("bytecode"):
            failed = bytecode.add(self.job, wheels, {*touched, *self.settling.sources})
            self.collisions = self.settling.finish()
        if failed:
            self.notices.append(
                f"{counted(len(failed), 'Python file')} cannot be compiled to bytecode, e.g. {failed[0]}"
            )
        return activation

    @contextmanager
    def _phase(self, name: str, detail: str = "") -> Iterator[None]:
        self.job.progress.phase(self.job.module, name, detail)
        started = time.monotonic()
        try:
            yield
        finally:
            self.timings[name] = round(time.monotonic() - started, 3)

    def _record(
        self,
        python: Mapping[str, str],
        tools: Mapping[str, Tool],
        compiled: Sequence[CompiledWheel],
        activation: Activation,
        use: disk.DiskUse,
    ) -> BuildRecord:
        job, variant = self.job, self.job.variant
        return BuildRecord(
            stack=variant.stack,
            version=variant.version,
            variant=variant.name,
            revision=0,
            module=job.module,
            input_hash="",
            hash_format=BUILD_FORMAT,
            platform=job.locked.platform,
            path=str(job.paths.root),
            prefix=str(job.prefix),
            created=now(),
            summary=variant.summary,
            axes=dict(variant.axes),
            packages=packages_of(job, compiled),
            activation=activation,
            disk=use,
            interpreter=python,
            tools={name: {"path": tool.path, "version": tool.version} for name, tool in sorted(tools.items())},
            settings=module_settings(variant, job.site),
            checks=tuple(self._check(check) for check in variant.checks),
            exceptions=variant.exceptions.model_dump(mode="json"),
            timings_s=self.timings,
            notices=tuple(dict.fromkeys(self.notices)),
            base=variant.base,
            collisions=self.collisions,
        )

    def _check(self, check: Check) -> dict[str, Any]:
        """A check for the record; its script is the copy in ``recipe/``, which never changes."""
        return check.model_copy(update={"script": self.kept.get(check.script, check.script)}).model_dump(mode="json")


def module_settings(variant: Variant, site: Site) -> dict[str, Any]:
    """The module settings of stack and site, fixed at the build: later changes of the site do not affect them.

    An extension takes the place of its base: it has the same family, the same conflicts, and no more nodes.
    """
    settings = variant.modules.model_dump(mode="json")
    if variant.max_nodes is not None:
        settings["max_nodes"] = variant.max_nodes.model_dump(mode="json")
    if variant.base is not None:
        from stackyard.lock.base.extension import record_of

        above = record_of(variant.base).settings
        settings["family"] = above.get("family", "") if variant.modules.family is None else variant.modules.family
        settings["prompt"] = bool(above.get("prompt")) if variant.modules.prompt is None else variant.modules.prompt
        for key in ("conflict", "depends_on"):
            settings[key] = list(dict.fromkeys((*(above.get(key) or ()), *settings[key])))
        limits = [most for most in (settings.get("max_nodes"), above.get("max_nodes")) if most]
        if limits:
            settings["max_nodes"] = min(limits, key=lambda most: int(most["count"]))
        return settings
    own = variant.modules
    nothing = not variant.adopted and not (variant.environment.conda or variant.environment.pip or variant.post)
    beside = bool(own.commands) or nothing  # a wrapped image has no packages either
    common = () if beside else site.modules.depends_on  # what runs beside the user's stack replaces nothing of it
    family = "" if beside else site.modules.family
    if nothing and variant.wrap is None:
        settings["variables_only"] = True
    settings["family"] = family if own.family is None else own.family
    settings["prompt"] = (site.modules.prompt and not beside) if own.prompt is None else own.prompt
    settings["depends_on"] = list(dict.fromkeys((*common, *own.depends_on)))
    return settings


def captured(job: Job, root: Path | None = None) -> Activation:
    """The prefix's own activation with the file's variables, then the run-time variables of the site and of the stack.

    The last value wins. Users may have set these variables too, so unloading restores theirs.

    Args:
        root: the prefix, if it is not the job's own.
    """
    from stackyard.inputs.conda.environment import variables_for
    from stackyard.make.activation.capture import capture

    root = root or job.prefix
    prefix = os.fspath(root)
    variables = variables_for(job.variant.environment, job.locked.platform, job.variant.axes)
    written = {k: v.replace("{prefix}", prefix) for k, v in variables.items()}
    activation = capture(root, keep=(*job.variant.build.keep, *written), variables=written, view=job.view())
    own = {**job.site.run_variables, **job.variant.run_variables}
    added = EnvironmentChange(tuple(SetRestorable(k, v.replace("{prefix}", prefix)) for k, v in own.items()))
    return replace(activation, change=activation.change + added)


def sharing_samples(job: Job) -> list[Path]:
    """One file per package that could be shared with the cache, to detect how files were linked."""
    samples = []
    for package in job.locked.conda:
        meta = job.prefix / "conda-meta" / f"{package.name}-{package.version}-{package.build}.json"
        with suppress(OSError):
            entries = formats.content(meta.read_text(encoding="utf-8"))["paths_data"]["paths"]
            samples += [job.prefix / e["_path"] for e in entries if _shareable(e)][:1]
    if job.locked.pip:
        samples += job.site_packages.glob("*.dist-info/METADATA")
    return samples


def _shareable(entry: Mapping[str, Any]) -> bool:
    changed = entry.get("prefix_placeholder") or entry.get("sha256_in_prefix")
    return entry["path_type"] == "hardlink" and not changed and bool(entry.get("size_in_bytes"))
