"""The kind of a revision: its payload, its origin, its base; and the allowed combinations."""
