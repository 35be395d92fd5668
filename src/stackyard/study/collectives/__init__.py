"""Collective operations: what is measured, and the results as nccl-tests writes them."""
