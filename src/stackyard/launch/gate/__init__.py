"""The gate: before the program starts, its nodes prove that they are alike, can talk, and are fast enough."""
