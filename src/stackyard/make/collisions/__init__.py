"""File collisions: paths that several packages install. The file to keep is chosen so that one lock gives one tree."""
