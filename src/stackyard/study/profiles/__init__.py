"""Traces of profiled runs: read piece by piece, reduced to a few numbers of each rank, and explained."""
