#!/bin/bash
conda activate torch
exec python train.py
