"""The pip half of a lock: resolution by uv, constraints, hashes, wheel tags."""
