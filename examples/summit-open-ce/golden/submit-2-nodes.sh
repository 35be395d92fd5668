#!/bin/bash
#BSUB -J train
#BSUB -P PROJ
#BSUB -q batch
#BSUB -W 1:00
#BSUB -nnodes 2
#BSUB -o "/home/user/work/runs/2026-11-21-001/batch.log"
#BSUB -e "/home/user/work/runs/2026-11-21-001/batch.log"

# created by:
#   stackyard --site /opt/stackyard/examples/summit-open-ce/site.yaml submit -N 2 -t 60 -A PROJ ../resnet/train.py
# starts the ranks with:
#   jsrun -n2 -r1 -g6 -a6 -c42 -bpacked:7 -dpacked -X1 --smpiargs=off /home/user/work/runs/2026-11-21-001/rank.sh
# and rank.sh runs:
#   python ../resnet/train.py

cd /home/user/work || exit 1
exec /opt/stackyard/bin/python -m stackyard.cli.main --yard /home/user/.local/share/stackyard --site /opt/stackyard/examples/summit-open-ce/site.yaml launch --recorded /home/user/work/runs/2026-11-21-001
