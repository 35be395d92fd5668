"""Access to this machine: files, network, accounts, hardware, and the one door to subprocesses."""
