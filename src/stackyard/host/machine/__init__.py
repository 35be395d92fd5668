"""Properties of this machine: platform, devices, libraries, MPI, module systems, container runtimes."""
