#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=4 --time=1:00:00 --signal=B:TERM@60
trap 'echo cancelled; exit 130' TERM
snakemake --cores 4 --directory work
