"""One solve, of a variant on a platform: first the conda part, then the interpreter, then the pip part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.core.progress import Progress
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.models import Interpreter, PipRequirement, Site, Variant
from stackyard.inputs.pip import settings as pipsettings
from stackyard.lock import interpreter as python
from stackyard.lock.accelerator import HOME, Accelerator, for_variant
from stackyard.lock.conda.virtual import VirtualPackages, for_platform
from stackyard.lock.lockfile.fingerprint import (
    Fingerprint,
    conda_requirements,
    constraints,
    option_places,
    pip_requirements,
    place_of,
    where_of,
)
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter, LockedVariant
from stackyard.lock.renewal import PreferredPackages, Update
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard

if TYPE_CHECKING:
    from stackyard.lock.base.distributions import UnreadPackage
    from stackyard.lock.pip.provided import ProvidedDistribution


@dataclass(frozen=True)
class SolveContext:
    """The inputs of one solve.

    Attributes:
        subject: the variant and platform, for messages.
        before: the present lock of the variant; its packages are kept if possible, except those in `update`.
    """

    variant: Variant
    site: Site
    yard: Yard
    platform: str
    subject: str
    progress: Progress
    before: LockedVariant | None
    update: Update

    def run(self, print_of: Fingerprint) -> LockedVariant:
        """Run the solve.

        Raises:
            InputError: no solution exists, or two interpreters are requested.
            StackyardError: a channel or index cannot be reached.
        """
        self.progress.phase(self.subject, "solve")
        variant = self.variant
        locked = LockedVariant(
            variant.stack, variant.version, variant.name, self.platform, print_of.digest, LockedInterpreter("none"),
            virtual=self._virtual.packages, requested=print_of.requested, policy=print_of.policy,
        )  # fmt: skip
        if variant.base is not None:
            return self._layer(locked, variant.base)
        interpreter = variant.interpreter.completed(self.site.interpreter)
        source = python.source_of(interpreter, conda=bool(conda_requirements(variant, self.platform)))
        locked = self._with_conda(locked, interpreter if source == "conda" else None)
        if source != "conda":
            locked = replace(locked, interpreter=self._interpreter(source, interpreter, locked))
        unread: tuple[UnreadPackage, ...] = ()
        if pip_requirements(variant, self.platform):
            locked, unread = self._described(locked)
        return self._with_pip(locked, unread)

    def _layer(self, locked: LockedVariant, base: BaseRevision) -> LockedVariant:
        """The packages that an extension adds to its base."""
        from stackyard.lock.base import extension as onbase

        below = tuple(package for lock in onbase.locks(base) for package in lock.conda)
        try:
            locked = self._with_conda(locked, None, below)
        except InputError as error:
            raise onbase.contradicted(error, base, below) from error
        locked = replace(locked, conda=onbase.added(locked.conda, below), interpreter=onbase.interpreter(base))
        locked, unread = self._described(locked, below)
        onbase.require_new(locked.conda, unread, base, place_of(self.variant))
        return self._with_pip(locked, unread)

    @cached_property
    def _virtual(self) -> VirtualPackages:
        conda = self.variant.base is None or bool(conda_requirements(self.variant, self.platform))
        return for_platform(self.site, self.platform, self.variant.axes, conda=conda)

    @cached_property
    def _preferred(self) -> PreferredPackages:
        return PreferredPackages.of(self.before, self.update)

    def _with_conda(
        self, locked: LockedVariant, interpreter: Interpreter | None, base: tuple[CondaPackage, ...] = ()
    ) -> LockedVariant:
        """The variant with its conda packages; `interpreter`: also Python, if pip packages or the stack need it.

        Args:
            base: the packages of an extension's base.
        """
        from stackyard.lock.conda.channels import Resolver

        variant, site = self.variant, self.site
        requirements = conda_requirements(variant, self.platform)
        resolver = Resolver(site.channels, where_of(variant))
        specs = [resolver.spec(r) for r in requirements]
        places = tuple((spec, r.place) for spec, r in zip(specs, requirements, strict=True) if r.place.file)
        pips = pip_requirements(variant, self.platform)
        if interpreter is not None and (
            interpreter.version or (pips and not any(r.name == "python" for r in requirements))
        ):
            specs.append(python.conda_spec(interpreter.version))
        if not specs:
            return locked
        from stackyard.lock.conda.solve import CondaRequest, solve_conda

        channels = resolver.search_list(variant.environment, self.platform, variant.axes)
        request = CondaRequest(
            self.subject, self.platform, tuple(specs), channels, self._virtual.packages, self.yard.repodata, site.pins,
            site.channels.priority, site.channels.exclude_newer, place_of(variant), places, self._preferred, base,
            site.file,
        )  # fmt: skip
        packages = solve_conda(request)
        return replace(
            locked, conda=packages, channels=tuple(c.shown for c in channels), interpreter=python.from_conda(packages),
        )  # fmt: skip

    def _described(
        self, locked: LockedVariant, below: tuple[CondaPackage, ...] = ()
    ) -> tuple[LockedVariant, tuple[UnreadPackage, ...]]:
        """The variant with the distributions in its conda packages, and the packages that could not be read."""
        from stackyard.lock.base import distributions as dists

        if not locked.conda:
            return locked, ()
        places = dists.site_packages(locked.interpreter.version, (*below, *locked.conda))
        conda, unread = dists.described(locked.conda, self.yard, places)
        return replace(locked, conda=conda), unread

    def _interpreter(self, source: python.Source, interpreter: Interpreter, locked: LockedVariant) -> LockedInterpreter:
        where = place_of(self.variant)
        if locked.interpreter.source == "conda":
            raise InputError(
                f"two interpreters: interpreter: source: {source}, and python {locked.interpreter.version} of conda",
                where=where,
                hint="remove python and what depends on it from the conda packages, or use interpreter: source: conda",
            )
        before = None if self.update.everything or self.update.names_one("python") else self.before
        if before is not None and python.still_fits(before.interpreter, source, interpreter, where):
            return before.interpreter
        if source == "host":
            return python.from_host(interpreter, self.platform, where)
        return python.from_uv(interpreter, self.platform, self.yard.pythons, where)

    def _with_pip(self, locked: LockedVariant, unread: Sequence[UnreadPackage]) -> LockedVariant:
        """The variant with its pip packages, and all notices."""
        from stackyard.lock.base.distributions import require_read
        from stackyard.lock.pip import resolve as pip

        variant, site = self.variant, self.site
        told = (*self._virtual.notices, *locked.notices)
        requirements = tuple(_mirrored(r, site) for r in pip_requirements(variant, self.platform))
        if not requirements:
            return replace(locked, notices=told)
        self.progress.phase(self.subject, "solve", "pip")
        places = option_places(variant)
        settings, notices = pipsettings.settings(site.pip, variant.environment.pip_options, os.environ, places)
        provided, unknown = self._given(locked)
        request = pip.PipRequest(
            self.subject, self.platform, locked.interpreter.version, self._virtual.version("__glibc"), requirements,
            settings, self.yard.uv, constraints(variant, self.platform), provided, variant.build, place_of(variant),
            site.channels.exclude_newer, places, self._preferred.pip, self._accelerator(settings, requirements),
            pipsettings.mirrored(HOME, site.pip), site.pins, site.file,
        )  # fmt: skip
        solution = pip.solve_pip(request)
        hidden = require_read(unread, solution.packages)
        return replace(locked, pip=solution.packages, notices=(*told, *notices, *unknown, *hidden, *solution.notices))

    def _given(self, locked: LockedVariant) -> tuple[tuple[ProvidedDistribution, ...], tuple[str, ...]]:
        """The distributions that pip must not change: those of conda packages and of the base."""
        from stackyard.lock.base import extension as onbase
        from stackyard.lock.pip import provided as given

        own, unknown = given.given(locked.conda)
        if self.variant.base is None:
            return own, unknown
        inherited, hidden = onbase.distributions(self.variant.base)
        return tuple({distribution.name: distribution for distribution in (*own, *inherited)}.values()), (
            *unknown,
            *hidden,
        )

    def _accelerator(self, settings: PipSettings, requirements: Sequence[PipRequirement]) -> Accelerator | None:
        """The accelerator that selects the build of torch; None without indexes."""
        if settings.no_index:
            return None
        return for_variant(self.variant, requirements, self.site, self.platform, self._virtual)


def _mirrored(requirement: PipRequirement, site: Site) -> PipRequirement:
    """A requirement with its own index replaced by the site's mirror of it, if any."""
    if not requirement.index:
        return requirement
    return requirement.model_copy(update={"index": pipsettings.mirrored(requirement.index, site.pip)})
