#!/bin/bash
#SBATCH --partition=!TBG_queue
#SBATCH --time=!TBG_wallTime
#SBATCH --ntasks=!TBG_tasks
#SBATCH --mem=!TBG_memPerNode
#SBATCH --nodes=<NODES> --account=@ACCOUNT@
srun ./solver
