"""stack.yaml: its variants, their names, and how conditions, imports and the matrix are resolved."""
