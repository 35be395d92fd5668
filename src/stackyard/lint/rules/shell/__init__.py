"""Rules on the shell of a batch script: its slips, its signals and streams, what runs behind it."""
