"""The rules on the head of a script: which lines are read, which options and values the scheduler takes."""
