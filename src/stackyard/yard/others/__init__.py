"""Other yards and other accounts: extensions of this yard's revisions, uses, counts, copies at other places."""
