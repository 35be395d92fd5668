#!/bin/bash
#FLUX: -N 2
#FLUX: --time-limit=30m
# flux: --queue=pbatch
flux run ./solver
