#!/bin/sh
# flux: -N2
#flux: -q pdebug
true
