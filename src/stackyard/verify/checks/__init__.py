"""The checks: each looks at one property of a revision."""
