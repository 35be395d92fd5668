"""A shell script as commands, words and values: text in, facts out."""
