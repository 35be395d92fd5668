"""Web pages of a stack's tools (TensorBoard and the like) that no other account of a node can open."""
