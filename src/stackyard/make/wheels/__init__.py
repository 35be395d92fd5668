"""The pip part of a prefix: source compiled to wheels once per key, and wheels installed."""
