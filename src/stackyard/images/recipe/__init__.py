"""Recipes that build a revision's image elsewhere, without Stackyard."""
