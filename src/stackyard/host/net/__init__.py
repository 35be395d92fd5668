"""Network access: the one door to HTTP, and the gateway that keeps logins from other programs."""
