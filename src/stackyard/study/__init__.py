"""Measures programs that `launch` runs: what their output says, compared with intervals that hold."""
