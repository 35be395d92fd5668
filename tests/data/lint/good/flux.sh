#!/bin/bash
# flux: -N 2
# flux: --time-limit=30m
flux run -N 2 -n 16 -c 4 -g 1 -o cpu-affinity=per-task ./solver
