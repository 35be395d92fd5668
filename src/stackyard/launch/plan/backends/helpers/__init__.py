"""Programs that a stack's own python runs on the nodes. In a folder of their own: it becomes the head of their path."""
