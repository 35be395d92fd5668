"""The shell variables that a job needs: recorded with a run, and exported in scripts for PBS, which drops them.

The list has single names, and prefixes for libraries with many settings. What looks like a secret is never carried:
name it with ``--env NAME``, which records the name only.
"""

from __future__ import annotations

from collections.abc import Mapping

from stackyard.core.secrets import is_secret_name, shown

SHELL = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SLURM_CONF")
PREFIXES = ("NCCL_", "RCCL_", "TORCH_NCCL_", "UCX_", "FI_", "MPICH_", "OMPI_MCA_", "OMP_", "MIOPEN_")
"""Settings of the network, of MPI, of threads and of kernels."""
LISTED = {
    "HOROVOD": (
        "ADASUM_MPI_CHUNK_SIZE", "AUTOTUNE", "AUTOTUNE_LOG", "BATCH_D2D_MEMCOPIES", "CACHE_CAPACITY", "CPU_OPERATIONS",
        "CYCLE_TIME", "DISABLE_GROUP_FUSION", "ENABLE_ASYNC_COMPLETION", "FUSION_THRESHOLD", "GLOO_IFACE",
        "GLOO_TIMEOUT_SECONDS", "HIERARCHICAL_ALLGATHER", "HIERARCHICAL_ALLREDUCE", "LOG_HIDE_TIME", "LOG_LEVEL",
        "MPI_THREADS_DISABLE", "NUM_NCCL_STREAMS", "STALL_CHECK_DISABLE", "STALL_CHECK_TIME_SECONDS",
        "STALL_SHUTDOWN_TIME_SECONDS", "THREAD_AFFINITY", "TIMELINE", "TIMELINE_MARK_CYCLES",
    ),
    "TORCH": (
        "ALLOW_TF32_CUBLAS_OVERRIDE", "COMPILE_DEBUG", "CPP_LOG_LEVEL", "CUDA_ARCH_LIST", "CUDNN_V8_API_DISABLED",
        "DISTRIBUTED_DEBUG", "EXTENSIONS_DIR", "FR_BUFFER_SIZE", "HOME", "LOGS", "LOGS_FORMAT", "LOGS_OUT",
        "SHOW_CPP_STACKTRACES", "TRACE", "USE_CUDA_DSA", "WARN_ONCE",
    ),
    "JAX": (
        "COMPILATION_CACHE_DIR", "DEBUG_INFS", "DEBUG_NANS", "DEFAULT_MATMUL_PRECISION", "DISABLE_JIT",
        "ENABLE_COMPILATION_CACHE", "ENABLE_X64", "LOG_COMPILES", "NUM_CPU_DEVICES", "PLATFORMS",
        "TRACEBACK_FILTERING",
    ),
}  # fmt: skip
"""By library, the settings of a run; the rest of Horovod's is its launcher's, which Stackyard replaces."""
CARRIED = frozenset((*SHELL, *(f"{library}_{name}" for library, names in LISTED.items() for name in names)))


def is_carried(name: str) -> bool:
    """Whether a job needs this variable of your shell."""
    return (name in CARRIED or name.startswith(PREFIXES)) and not is_secret_name(name)


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job needs, by name; values with a visible login or token are left out."""
    return {name: value for name, value in sorted(environ.items()) if is_carried(name) and shown(value) == value}
