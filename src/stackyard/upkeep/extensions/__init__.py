"""Extensions in users' yards: their files, their bases, what changed in them."""
