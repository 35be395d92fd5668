"""Requests to the probes of a run that is running: what asks, and what passes them on in the hub."""
