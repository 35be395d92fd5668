/* What an MPI program says of itself: its rank, the sum over all ranks, and the library that it runs with. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int rank, size, length, sum = 0, one;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  one = rank + 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\n")] = 0;
  printf("rank %d of %d: sum %d, last %d, %s\n", rank, size, sum, one, version);
  fflush(stdout);
  usleep(300000);
  MPI_Finalize();
  return 0;
}
