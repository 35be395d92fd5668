#!/bin/bash
# flux: -N 2
# flux: -n 8
# flux: --time-limit=abc1
flux run -N 2 -n 8 -c 4 ./solver
