#!/bin/bash
#SBATCH --job-name=train
#SBATCH --account=PROJ
#SBATCH --qos=regular
#SBATCH --constraint=gpu
#SBATCH --time=1:00:00
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --threads-per-core=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --gpus-per-node=4
#SBATCH --output=/home/user/work/runs/2026-11-21-001/batch.log
#SBATCH --no-requeue

# created by:
#   stackyard --site /opt/stackyard/examples/perlmutter/site.yaml submit -N 4 -t 60 -A PROJ --qos regular
#   ../resnet/train.py
# starts the ranks with:
#   srun -N 4 -n 16 --ntasks-per-node=4 --distribution=block:block
#   --cpu-bind=mask_cpu:0xffff000000000000,0xffff00000000,0xffff0000,0xffff --gpus-per-node=4 --gpu-bind=none
#   --mpi=none --export=ALL --kill-on-bad-exit=1 --wait=0 /home/user/work/runs/2026-11-21-001/rank.sh
# and rank.sh runs:
#   python ../resnet/train.py

cd /home/user/work || exit 1
exec /opt/stackyard/bin/python -m stackyard.cli.main --yard /home/user/.local/share/stackyard --site /opt/stackyard/examples/perlmutter/site.yaml launch --recorded /home/user/work/runs/2026-11-21-001
