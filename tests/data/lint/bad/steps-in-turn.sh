#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --time=1:00:00
for part in 1 2 3 4; do
  srun -N1 -n1 ./work.sh $part &
done
wait
