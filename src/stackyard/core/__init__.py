"""What every room may use: errors, findings, progress, secrets, quoting, and changes of an environment as data."""
