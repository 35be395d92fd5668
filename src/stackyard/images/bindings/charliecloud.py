"""Does for ch-run what Apptainer does by itself: add libraries to an image, and create mount points.

ch-run binds a file over a file that exists, and creates nothing in an image. It uses the host's /tmp. So a library is
bound over an empty file of its name in a private directory of the node, which is on the library path inside.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from stackyard.images.bindings.tree import Tree

_GLOBBED = re.compile(r"[\w./+*-]+", re.ASCII)


def linked(files: Iterable[str]) -> str:
    """Text for bash, after which ``"${sy_binds[@]}"`` are ch-run's options that add these files to an image.

    ``$STACKYARD_DIR`` is a private directory that the image sees; `inputs.sites.library_directories.CHARLIECLOUD` says
    where the files are inside. ``*`` is expanded on the node, and a file that does not exist there is left out.
    """
    words = " ".join(word if "*" in word and _GLOBBED.fullmatch(word) else shlex.quote(word) for word in files)
    return f"""shopt -s nullglob; sy_list=({words}); shopt -u nullglob
mkdir -p -- "$STACKYARD_DIR/libs"; sy_binds=(-b "$STACKYARD_DIR")
for sy_path in "${{sy_list[@]}}"; do
  sy_line=$STACKYARD_DIR/libs/${{sy_path##*/}}
  : > "$sy_line"; sy_binds+=(-b "$sy_path:$sy_line")
done
export STACKYARD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
"""


def without_a_place(image: Tree, binds: Iterable[str]) -> list[str]:
    """The binds for which a read-only image has no mount point.

    No mount point is needed below /tmp and /dev, which are the host's, and below another bind (ch-run 0.31:
    ``bind_mount``).
    """
    targets = [Path(bind.split(":")[1] if ":" in bind else bind) for bind in binds if not bind.startswith("$")]
    lacking = []
    for target in dict.fromkeys(targets):
        above = {Path("/tmp"), Path("/dev"), *(other for other in targets if other != target)} & set(target.parents)
        if not above and image.find(str(target)) is None:
            lacking.append(str(target))
    return lacking
