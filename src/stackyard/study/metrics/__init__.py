"""Metrics of a run: what is declared, what common programs print, and one reader for both."""
