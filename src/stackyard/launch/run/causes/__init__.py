"""Known causes of failures: their rules, and how the lines of a log are searched for them."""
