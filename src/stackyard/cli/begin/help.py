"""``stackyard help``: the verbs of every day, all of them, or the help of one."""

from __future__ import annotations

import click

from stackyard.cli.begin.everyday import everyday
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import show_text

VISIBILITY = """\
Who sees a revision then, and how to undo it

  share REV --with G  a group; of your own yard          share REV ... --undo
  default REV         all: the short name loads it       default STACK --undo
  withdraw REV        hidden; its full name loads it     withdraw REV --undo
  retire REV --on D   all, with a warning from D on      retire REV --undo
  remove REV          no one; its files stay some days   remove REV --undo
  rollback            all see the previous generation    rollback NUMBER

What is loaded or runs goes on. --dry-run shows what would change.
"""


@verb(
    ("how a verb is used", "stackyard help launch"),
    ("who sees a revision, and how to undo it", "stackyard help visibility"),
    context_settings={"ignore_unknown_options": True},
)
@click.argument("words", nargs=-1, metavar="[VERB | visibility]")
@click.option("--all", "every", is_flag=True, help="List all verbs.")
@click.pass_context
def command(ctx: click.Context, context: Context, words: tuple[str, ...], every: bool) -> None:
    """Show the verbs of every day; of a VERB its options and examples; of `visibility` who sees what."""
    root = ctx.find_root()
    if words == ("visibility",):
        show_text(VISIBILITY.rstrip())
    elif words:
        root.command.main([*words, "--help"], prog_name=root.command_path, standalone_mode=False, parent=None)
    elif every:
        show_text(root.get_help())
    else:
        everyday(context)
