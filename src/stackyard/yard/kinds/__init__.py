"""What kind a revision is: its payload, its origin, its base; and which of these go together."""
