"""Symbol versions of ELF files: what each needs and defines, and whether libraries fit together."""
