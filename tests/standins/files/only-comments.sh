#!/bin/bash
#BSUB -n 1
