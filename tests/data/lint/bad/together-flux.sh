#!/bin/bash
# flux: -N 2
# flux: -t 1h
# flux: --urgency=urgent
flux run -N 2 -n 16 --tasks-per-node=8 ./a.out
