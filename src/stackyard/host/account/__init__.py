"""Work under other accounts: root's commands on another account's yard run with that account's rights."""
