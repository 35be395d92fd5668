"""What runs beside the ranks: the shim (plain shell, one per task) and the agent (one Python per node)."""
