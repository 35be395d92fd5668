"""Stackyard turns one declarative file into a deep-learning software stack that a cluster can use."""

__version__ = "0.1.0"
