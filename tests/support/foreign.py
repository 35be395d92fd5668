"""Failures of others' programs that come now and then on busy cores: such a test is tried again, which is shown.

Only a failure whose message has one of these, of a test marked ``real``; what always crashes still fails.
"""

from __future__ import annotations

import pytest

from support.stuckmpi import STUCK

TRIES_MORE = 2
CRASHES = (
    # UCX (in MPICH) measures its transports in MPI_Init; on busy cores one of them comes out as 0
    r"failed to unpack address, invalid bandwidth 0\.00",
    # Open MPI 5.0.7: another rank sends before this one can receive
    r"mca_pml_ob1_recv_frag_callback_match",
    # Open MPI 4.1.4 within MPI_Init: a jump to address 0 (no frame of a function follows the C library's)
    r"Failing at address: \(nil\)\n.*\[ 0\] \S*/libc\.so.*\n.*End of error message",
    # the same below `from mpi4py import MPI` of the example, by Python's stack
    r'train_mpi\.py", line 10 in <module>',
    # py-spy: on busy cores it looks for Python in a process that it has not yet replaced by Python
    r"No python processes found in process \d+ or any of its subprocesses",
    # PyTorch 2.13 with Gloo: std::terminate at exit, after the program's last line; once in ten, also without a probe
    r"terminate called without an active exception",
    # MPICH: the ranks wait for each other for ever
    STUCK,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests with real programs be tried again where one of these crashed."""
    for item in items:
        if item.get_closest_marker("real") and not item.get_closest_marker("flaky"):
            item.add_marker(pytest.mark.flaky(reruns=TRIES_MORE, only_rerun=list(CRASHES)))
