"""The monitoring of a node's ranks: their memory, GPUs and MPI, and the stack traces of hanging ones."""
