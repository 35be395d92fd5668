"""The door to profiling a run that is running."""

from stackyard.launch.jobs.profiling import LiveProfile, ProfileRequest, RankTrace, profile_run

__all__ = ["LiveProfile", "ProfileRequest", "RankTrace", "profile_run"]
