#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, world, own, total;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    own = rank + 1;
    MPI_Allreduce(&own, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("world %d, sum %d\n", world, total);
    MPI_Finalize();
    return 0;
}
