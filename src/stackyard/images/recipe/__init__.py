"""Recipes: how a revision's image is built elsewhere, by programs that know nothing of Stackyard."""
