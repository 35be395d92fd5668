"""One step: the launcher started, its agents heard, the first failure named, and nothing left behind."""
