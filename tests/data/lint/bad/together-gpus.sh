#!/bin/bash
#SBATCH --nodes=1 --time=1:00:00
#SBATCH --ntasks-per-node=2
#SBATCH --gpus=2
#SBATCH --ntasks-per-gpu=1
srun ./a.out
