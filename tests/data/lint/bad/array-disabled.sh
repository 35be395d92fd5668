#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --time=20:00:00
##SBATCH --array=1-100
seed=$(($SLURM_ARRAY_TASK_ID - 1))
Rscript main.R --seed $seed
