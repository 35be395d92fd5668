"""The pip half of a lock: uv's resolution, constraints, hashes, wheels' tags."""
