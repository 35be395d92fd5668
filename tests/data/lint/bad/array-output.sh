#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --time=1:00:00
#SBATCH --array=0-9
#SBATCH --output=work.log
srun ./a.out $SLURM_ARRAY_TASK_ID
