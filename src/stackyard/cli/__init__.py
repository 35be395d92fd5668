"""The only room that prints, prompts or exits."""
