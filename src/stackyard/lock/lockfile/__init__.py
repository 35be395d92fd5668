"""The lock as data and as a file: model, text, fingerprint, export to other tools."""
