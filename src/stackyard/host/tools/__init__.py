"""Third-party programs and libraries that Stackyard uses: uv, rattler, pip's configuration, ssh-keygen, zstd."""
