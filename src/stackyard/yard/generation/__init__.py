"""Generations: the numbered publications of a yard, and the link to the current one."""
