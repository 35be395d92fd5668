"""Revisions from elsewhere and to elsewhere: pull, adopt, move."""
