#!/bin/sh
#flux: --job-name="open
true
