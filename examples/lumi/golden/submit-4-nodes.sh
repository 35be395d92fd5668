#!/bin/bash
#SBATCH --job-name=train
#SBATCH --account=PROJ
#SBATCH --partition=standard-g
#SBATCH --time=1:00:00
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --threads-per-core=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --gpus-per-node=8
#SBATCH --output=/home/user/work/runs/2026-11-21-001/batch.log
#SBATCH --no-requeue

# created by:
#   stackyard --site /opt/stackyard/examples/lumi/site.yaml submit -N 4 -t 60 -A PROJ ../resnet/train.py
# starts the ranks with:
#   srun -N 4 -n 32 --ntasks-per-node=8 --distribution=block:block
#   --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000
#   --gpus-per-node=8 --gpu-bind=none --mpi=none --export=ALL --kill-on-bad-exit=1 --wait=0
#   /home/user/work/runs/2026-11-21-001/rank.sh
# and rank.sh runs:
#   python ../resnet/train.py

cd /home/user/work || exit 1
exec /opt/stackyard/bin/python -m stackyard.cli.main --yard /home/user/.local/share/stackyard --site /opt/stackyard/examples/lumi/site.yaml launch --recorded /home/user/work/runs/2026-11-21-001
