#!/bin/bash
#SBATCH --array=1-10 --time=1:00:00 --output=%A_%a.out
export SLURM_ARRAY_TASK_ID=3
srun -n 1 ./work $SLURM_ARRAY_TASK_ID
