"""Programs that the stack's python runs on the nodes. They have their own directory, since it becomes sys.path[0]."""
