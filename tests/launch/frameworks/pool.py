"""A pool of MPI processes: rank 0 is the program, the others work."""

from mpi4py.futures import MPIPoolExecutor


def square(x: int) -> int:
    return x * x


if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        total = sum(pool.map(square, range(4)))
        print(f"workers {pool.num_workers}, sum {total}", flush=True)
