"""Relocates a prefix to its path in an image: texts, links and binary files get the new paths."""
