"""From an intent to the exact command: layout, backend, wrappers, launch line, script head, and the reason for each."""
