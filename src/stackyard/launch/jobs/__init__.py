"""A job from its request to its end: planned, recorded, submitted or run here, repeated, explained."""
