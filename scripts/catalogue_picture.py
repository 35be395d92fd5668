"""Make docs/images/catalogue.png: the first page of the catalogue of a made-up site, in Chromium.

python scripts/catalogue_picture.py [PAGE] [TARGET]
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT, SCALE = 1240, 960, 0.8


def main() -> None:
    """Write the demo yard of the tests, its catalogue, and the picture."""
    sys.path.insert(0, str(ROOT / "tests"))
    from catalogue import yards
    from stackyard.catalogue.api import write_catalogue
    from stackyard.inputs.api import Workspace
    from support.browser import browser

    given = sys.argv[1:]
    name, target = (*given, *("index.html", "docs/images/catalogue.png")[len(given) :])
    with tempfile.TemporaryDirectory() as place:
        yard = yards.demo(Path(place) / "yard")
        write_catalogue(Workspace(yards.SITE, yard), Path(place) / "out", "site", print)
        with browser(Path(place), (WIDTH, HEIGHT)) as page:
            page.open((Path(place) / "out" / name).as_uri())
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": SCALE}
            picture = page.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    (ROOT / target).write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    main()
