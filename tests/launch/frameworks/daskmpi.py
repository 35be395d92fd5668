"""Dask on MPI: the scheduler on rank 0, the program on rank 1, workers on the others."""

from dask_mpi import initialize
from distributed import Client

initialize(dashboard=False)
with Client() as client:
    client.wait_for_workers(2)
    total = client.submit(sum, client.map(lambda x: x * x, range(4))).result()
    print(f"workers {len(client.run(id, 0))}, sum {total}", flush=True)
