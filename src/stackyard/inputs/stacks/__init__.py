"""stack.yaml: its variants, their names, and the resolution of conditions, imports and the matrix."""
