"""The life of a job: planned, recorded, submitted or run here, repeated, explained."""
