"""Compares a revision with a mounted image to its build, every byte; run inside the image's namespace.

python -m stackyard.images.squashfs.compare REVISION prints the differences; exit status 1 if there are any
"""

from __future__ import annotations

import sys
from pathlib import Path

from stackyard.make.seal import PARTS
from stackyard.yard import formats
from stackyard.yard.kinds.payload import STUB
from stackyard.yard.revision import contents
from stackyard.yard.revision.directories import RevisionPaths


def differences(root: Path) -> list[str]:
    """The differences from the note, one sentence each."""
    paths = RevisionPaths.of(root)
    if (paths.prefix / STUB).exists():
        return [f"{paths.image.name} is not mounted on {paths.prefix}"]
    noted = formats.load(paths.files, contents.KIND)
    tree = contents.scan(root, PARTS)
    return [str(damage) for damage in contents.compare(noted, root, tree, noted.hashed)]


if __name__ == "__main__":
    found = differences(Path(sys.argv[1]))
    print("\n".join(found))
    sys.exit(bool(found))
