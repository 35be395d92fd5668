"""Rules on one scheduler each: Flux, LSF, its jsrun, and PBS."""
