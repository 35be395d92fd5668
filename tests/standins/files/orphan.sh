#!/bin/sh
#flux: -N2
true
#flux: -q pdebug
