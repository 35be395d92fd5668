"""Commands of the host in place of a stack's own: `on_host` in its file.

A package may contain its own ssh, mpicc or qsub, which hides the site's. It is replaced by a script that runs the first
command of this name on PATH after the stack's own directory. For an image, the script is also among the stubs, so that
it does not mount the image.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from stackyard.yard.write.atomic import write_text

HEAD = "#!/bin/sh\n# On the host: "
_TEXT = """{head}`on_host` of the stack's file names {name}. The first one on PATH behind this directory is run.
sy_own={own} sy_name={name} sy_rest=$PATH:
case :$PATH: in
  *:"$sy_own":*) sy_rest=:$PATH: sy_rest=${{sy_rest#*:"$sy_own":}} ;;
esac
while [ -n "$sy_rest" ]; do
  sy_dir=${{sy_rest%%:*}} sy_rest=${{sy_rest#*:}}
  [ -n "$sy_dir" ] && [ "$sy_dir" != "$sy_own" ] && [ -f "$sy_dir/$sy_name" ] && [ -x "$sy_dir/$sy_name" ] &&
    exec "$sy_dir/$sy_name" "$@"
done
printf 'stackyard: %s not found on PATH behind %s: the stack leaves it to this machine (on_host)\\n' \\
  "$sy_name" "$sy_own" >&2
printf '  hint: load the module of the site that has it, or take %s out of `on_host`\\n' "$sy_name" >&2
exit 127
"""


def write(directory: Path, names: Sequence[str]) -> None:
    """Replace commands of a directory by the scripts; the former files may be links into a cache and are not modified.

    Args:
        directory: the directory of programs, at its final path.
    """
    for name in names:
        directory.mkdir(parents=True, exist_ok=True)
        text = _TEXT.format(head=HEAD, name=shlex.quote(name), own=shlex.quote(str(directory)))
        write_text(directory / name, text, mode=0o755)


def is_one(program: Path) -> bool:
    """Whether a program is such a script."""
    with program.open("rb") as stream:
        return stream.read(len(HEAD)) == HEAD.encode()
