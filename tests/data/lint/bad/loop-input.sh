#!/bin/bash
#SBATCH --nodes=1 --ntasks=2 --time=1:00:00
while read -r name; do
  srun -N1 -n2 ./work.sh "$name"
done < names.txt
