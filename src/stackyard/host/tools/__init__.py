"""Programs and libraries of others that Stackyard uses: uv, rattler, pip's configuration, ssh-keygen, zstd."""
