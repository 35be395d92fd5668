#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --time=1:00:00
#SBATCH --mem=32G
#SBATCH --mem-per-cpu=4G
srun ./a.out
