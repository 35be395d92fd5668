#!/bin/sh
# flux: -N2 -n8 # two nodes
# flux: --job-name="a job" -t 30m
# flux: -q pdebug --setattr=user.x=1
true
