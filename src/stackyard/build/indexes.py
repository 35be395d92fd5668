"""Where uv finds things while building: the same indexes, certificates and proxies that the lock was made with."""

from __future__ import annotations

import os

from stackyard.build.job import Job
from stackyard.lock.pipconf import PipSettings, settings
from stackyard.lock.uvcompile import uv_environment

# what would change uv's meaning, or point it at another Python
_FOREIGN = ("PIP_", "PYTHON", "CONDA_", "_CONDA_", "VIRTUAL_ENV", "MAMBA_", "PIXI_")


def pip_settings(job: Job) -> PipSettings:
    """What pip's files, the site and the stack's options say together."""
    return settings(job.site.pip, job.variant.environment.pip_options, os.environ)[0]


def environment(job: Job) -> dict[str, str]:
    """The environment for uv: the caller's way to the network, this yard's cache, nothing that changes a result."""
    kept = {k: v for k, v in uv_environment(pip_settings(job)).items() if not k.startswith(_FOREIGN)}
    return {**kept, "UV_CACHE_DIR": os.fspath(job.uv_cache), "UV_NO_PROGRESS": "1"}


def arguments(job: Job) -> list[str]:
    """uv's options for build requirements, which are resolved (best match over all indexes, as in pip)."""
    found = pip_settings(job)
    words = [f"--find-links={place}" for place in found.find_links]
    words += host_arguments(found)
    if found.no_index or not found.indexes:
        return [*words, "--no-index"]
    words += [f"--index={url}" for url in found.indexes[:-1]]
    words.append(f"--default-index={found.indexes[-1]}")
    return [*words, *(["--index-strategy=unsafe-best-match"] if len(found.indexes) > 1 else [])]


def host_arguments(found: PipSettings) -> list[str]:
    """uv's options for hosts whose certificate is not checked."""
    return [f"--allow-insecure-host={host}" for host in found.trusted_hosts]
