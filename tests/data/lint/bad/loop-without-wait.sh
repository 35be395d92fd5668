#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=28 --time=4:00:00
for f in *.fa; do
  blastx -query $f -num_threads 4 -out $f.out &
done
