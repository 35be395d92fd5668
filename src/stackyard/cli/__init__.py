"""The only room that prints, prompts or exits."""

import gc

gc.set_threshold(50_000, 20, 20)
"""A start makes some 100,000 objects and no garbage: to look for it after each 700 takes a tenth of the start."""
