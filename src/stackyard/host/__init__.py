"""What this machine has, and the one door to subprocesses."""
