"""Whether all files of a yard are what they were written as; and repairing them. No program of a stack is run."""
