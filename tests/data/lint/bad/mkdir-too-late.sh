#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --time=1:00:00
#SBATCH --output=logs/%j.out
mkdir -p logs
srun ./a.out
