"""The preflight's program on the nodes. Standard library and relative imports only, Python 3.7: it is copied into the
run directory as the package `stackyard_preflight` and run there by the Python of the stack, which does not know `stackyard`.
"""
