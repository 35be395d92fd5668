"""The catalogue: what a yard has published, as a static site, as Markdown pages and as JSON."""
