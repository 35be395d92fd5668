"""The screen of the bare command: what is typed every day. No yard is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stackyard import __version__
from stackyard.cli.context import Context
from stackyard.cli.output import show_text
from stackyard.core.errors import StackyardError

TEXT = """\
stackyard {version}   software stacks that a cluster can use

  deploy FILE      build and publish environment.yml, requirements.txt, ...
  list, show REV   what is published; what is in it   diff A B     what changed
  run REV -- CMD   one command in it                  extend       your packages
  launch SCRIPT    here or in this allocation         submit       a batch job
  runs             follow, compare and cancel jobs    lint JOB.sh  errors in it

first time here: stackyard init          what counts here: stackyard config
how it is used: stackyard help VERB | visibility | --all ({verbs} verbs)
yard: {yard}
site: {site}"""


def everyday(context: Context) -> None:
    """Print it, with the yard and the site of this command line."""
    from stackyard.cli.main import VERBS

    yard, site = _shown(context.yard_root), _shown(context.site_file)
    show_text(TEXT.format(version=__version__, verbs=len(VERBS), yard=yard, site=site))


def _shown(find: Callable[[], Path | None]) -> str:
    """A path, or why there is none."""
    try:
        return str(find() or "none")
    except (StackyardError, OSError) as error:
        return error.message if isinstance(error, StackyardError) else str(error)
