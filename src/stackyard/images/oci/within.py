"""Runs a build where the image of a revision is mounted: outside, only its stubs are visible.

python -m stackyard.images.oci.within FOLDER carries out the request that `build.build` has written there
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.images.oci.build import BuiltImage, carry_out
from stackyard.images.squashfs.enter import staying_mounted


def main(work: Path) -> None:
    """Run the requested build, and write the result or the error."""
    try:
        request = pickle.loads((work / "wanted").read_bytes())
        with staying_mounted(request.record.payload):
            result: BuiltImage | StackyardError = carry_out(request)
    except StackyardError as error:
        result = error
    (work / "built").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
