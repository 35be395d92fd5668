"""The preflight's program on the nodes. Standard library and relative imports only, Python 3.7: it is copied into the
run directory as a part of the package `stackyard_preflight` (`stackyard.launch.preflight.trial.install`) and run there
by the Python of the stack, in which `stackyard` cannot be imported.
"""
