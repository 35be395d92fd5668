"""The only room that prints, prompts or exits."""

import gc

gc.set_threshold(250_000, 20, 20)
"""A start makes some 60,000 objects that stay and no garbage: a single look at them takes a tenth of the start."""
