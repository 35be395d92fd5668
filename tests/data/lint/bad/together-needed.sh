#!/bin/bash
#SBATCH --nodes=1 --time=1:00:00 --ntasks=2
#SBATCH --mem-per-gpu=4G
srun ./a.out
