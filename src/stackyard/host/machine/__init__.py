"""What this machine has: platform, devices, libraries, MPI, module systems, container runtimes."""
