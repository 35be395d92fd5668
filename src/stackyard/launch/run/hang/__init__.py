"""A step that prints nothing any more: it is noticed, its stacks are kept, and the rank that is behind is named."""
