"""Logs of any program: read within bounds, and searched for the first known cause of their failure."""
