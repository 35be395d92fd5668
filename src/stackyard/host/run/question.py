"""Code for queries to another Python, as text for ``python -c``."""

from __future__ import annotations

from pathlib import Path


def about_distributions(code: str) -> str:
    """Code with access to `heads` and `first` of `host.run.heads`, and the modules ``os`` and ``sys``."""
    return f"{Path(__file__).with_name('heads.py').read_text(encoding='utf-8')}\n{code}"
