"""Parses a shell script into commands, words and values: text in, facts out."""
