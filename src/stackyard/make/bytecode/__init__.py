"""Bytecode, compiled once per package and Python version."""
