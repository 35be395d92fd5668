"""Checks of the shell, the machine and the yard. Each reads, and writes nothing; `table` lists them."""
