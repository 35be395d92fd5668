"""What a deploy requires of the machine, the site and the paths, asked before hours of work."""
