"""uv's settings while building: the same indexes, certificates and proxies as for the lock."""

from __future__ import annotations

import os

from stackyard.host.files import filelocks
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.inputs.pip.settings import settings
from stackyard.make.job import Job

# variables that would change what uv does, or point it to another Python
_FOREIGN = ("PIP_", "PYTHON", "CONDA_", "_CONDA_", "VIRTUAL_ENV", "MAMBA_", "PIXI_")


def pip_settings(job: Job) -> PipSettings:
    """pip's configuration, the site's policy and the stack's options, joined."""
    return settings(job.site.pip, job.variant.environment.pip_options, os.environ)[0]


def environment(job: Job) -> dict[str, str]:
    """The environment for uv: the caller's network settings, this yard's cache, nothing that changes a result."""
    variables = {k: v for k, v in uv.environment(pip_settings(job)).items() if not k.startswith(_FOREIGN)}
    own = {
        "UV_CACHE_DIR": os.fspath(job.uv_cache),
        "UV_NO_PROGRESS": "1",
        "UV_LOCK_TIMEOUT": f"{filelocks.LIMIT_S:.0f}",
    }
    return {**variables, **own}


def options(job: Job) -> list[str]:
    """uv's options for resolving build requirements: the indexes that the lock was made with, or the mirror."""
    if job.mirror:
        return job.mirror.index_options(pip_settings(job))
    return uv.index_options(pip_settings(job))
