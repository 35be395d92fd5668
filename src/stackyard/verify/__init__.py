"""Verification of a stack before it is published."""
