"""What other Pythons run: the worker of a slot, what asks Optuna, and the helper that a trial may import."""
