"""A revision for others: its packages, as an SBOM, as a citation, as HTML in a notebook."""
