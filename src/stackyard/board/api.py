"""The door of `board`: tools, what they show, and where."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.board.prepared import prepared as prepared_board
    from stackyard.board.serve import serve as serve_board
    from stackyard.board.tools import find as find_tool
    from stackyard.board.tools import of_command as tool_of_command
else:
    __getattr__, __dir__ = door(__file__, __name__)
