#!/usr/bin/env python
"""Two ranks add up their numbers over each controller of Horovod. Started once; it starts the ranks itself."""

import os
import subprocess
import sys
from pathlib import Path

RANKS = 2


def launch(controller: str) -> None:
    """Run this file on all ranks with one controller; anything but success ends the check."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if os.geteuid() == 0:  # Open MPI refuses root otherwise; in a container root is the only user
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    ranks = ["-np", str(RANKS), sys.executable, str(Path(__file__).resolve()), controller]
    subprocess.run(["horovodrun", f"--{controller}", *ranks], env=environment, check=True)


def work(controller: str) -> None:
    """What one rank does."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum)
    expected = sum(range(1, RANKS + 1))
    assert hvd.size() == RANKS, f"{hvd.size()} ranks instead of {RANKS}"
    assert total.item() == expected, f"the sum is {total.item()} instead of {expected}"
    if hvd.rank() == 0:
        print(f"{controller}: {RANKS} ranks, sum {total.item():g}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1])
    else:
        for name in ("gloo", "mpi"):
            launch(name)
