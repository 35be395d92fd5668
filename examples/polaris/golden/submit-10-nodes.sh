#!/bin/bash
#PBS -N train
#PBS -A PROJ
#PBS -q prod
#PBS -l walltime=1:00:00
#PBS -l select=10:ncpus=32:mpiprocs=4:system=polaris
#PBS -l place=scatter:excl
#PBS -o "/home/user/work/runs/2026-11-21-001/batch.log"
#PBS -j oe
#PBS -r n
#PBS -l filesystems=home:eagle

# created by:
#   stackyard --site /opt/stackyard/examples/polaris/site.yaml submit -N 10 -t 60 -A PROJ ../resnet/train.py
# starts the ranks with:
#   mpiexec --envall --line-buffer --np 40 --ppn 4 --cpu-bind list:24-31:16-23:8-15:0-7
#   /home/user/work/runs/2026-11-21-001/rank.sh
# and rank.sh runs:
#   python ../resnet/train.py

export PATH=/usr/bin:/bin
cd /home/user/work || exit 1
exec /opt/stackyard/bin/python -m stackyard.cli.main --yard /home/user/.local/share/stackyard --site /opt/stackyard/examples/polaris/site.yaml launch --recorded /home/user/work/runs/2026-11-21-001
