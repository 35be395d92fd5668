"""The logins and tokens of a build, from the stack's, the site's and pip's files; locks have none."""

from __future__ import annotations

from contextlib import suppress

from stackyard.core import secrets
from stackyard.core.errors import InputError
from stackyard.lock.conda.channels import Resolver
from stackyard.lock.lockfile.fingerprint import where_of
from stackyard.make.job import Job
from stackyard.make.wheels.indexes import pip_settings


def learn(job: Job) -> None:
    """Register all of them as secrets before the first download. A missing one is reported with its package."""
    environment = job.variant.environment
    for requirement in environment.conda:
        secrets.address(requirement.url, conda=True)
    for line in (*environment.pip, *environment.constraints):
        secrets.address(line.url)
        secrets.address(line.index, base=True)
    with suppress(InputError):
        resolver = Resolver(job.site.channels, where_of(job.variant))
        resolver.search_list(environment, job.locked.platform, job.variant.axes)
    with suppress(InputError):
        pip_settings(job)
