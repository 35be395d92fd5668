#!/bin/bash
#SBATCH --job-name=train
#SBATCH --account=PROJ
#SBATCH --partition=gpu
#SBATCH --time=1:00:00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=10
#SBATCH --mem=334233M
#SBATCH --gres=gpu:v100:4
#SBATCH --output=/home/user/work/runs/2026-11-21-001/batch.log
#SBATCH --no-requeue

# created by:
#   stackyard --site /opt/stackyard/examples/slurm-cluster/site.yaml submit -N 2 -t 60 -A PROJ ../resnet/train.py
# starts the ranks with:
#   srun -N 2 -n 8 --ntasks-per-node=4 --distribution=block:block -c 10 --cpu-bind=cores --gres=gpu:v100:4
#   --mpi=none --export=ALL --kill-on-bad-exit=1 --wait=0 /home/user/work/runs/2026-11-21-001/rank.sh
# and rank.sh runs:
#   python ../resnet/train.py

cd /home/user/work || exit 1
exec /opt/stackyard/bin/python -m stackyard.cli.main --yard /home/user/.local/share/stackyard --site /opt/stackyard/examples/slurm-cluster/site.yaml launch --recorded /home/user/work/runs/2026-11-21-001
