"""Changing a yard so that a kill at any point leaves no partial state."""
