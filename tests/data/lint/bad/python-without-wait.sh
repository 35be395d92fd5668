#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --time=1:00:00 --cpus-per-task=16
python train.py --rank 0 &
python train.py --rank 1 &
