#!/bin/bash
#SBATCH --time=1:00:00
#SBATCH --partition   milan
srun -n 1 ./a.out
