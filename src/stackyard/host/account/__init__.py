"""Which account does the work: root's commands on a yard of another account, done with that account's rights."""
