"""The staging of files on a node: read once, passed on in a tree of nodes, and written to each node's disk."""
