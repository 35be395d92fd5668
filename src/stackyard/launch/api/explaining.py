"""A job explained: its layout and picture, and the command line of each launcher with the reason for each flag."""

from stackyard.launch.jobs.explaining import JobExplanation, explain, stand_for
from stackyard.launch.layout.model import Layout
from stackyard.launch.layout.picture import draw
from stackyard.launch.layout.this_node import THIS
from stackyard.launch.plan.command import shown_words

__all__ = ["THIS", "JobExplanation", "Layout", "draw", "explain", "shown_words", "stand_for"]
