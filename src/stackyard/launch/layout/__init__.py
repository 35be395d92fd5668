"""Who runs where: nodes, ranks, cores and GPUs. Pure: nothing here starts a program."""
