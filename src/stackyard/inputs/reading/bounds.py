"""ruamel.yaml's composer with bounds on the number and the depth of values, checked while it reads.

Without them a few hundred bytes can take gigabytes or end in a RecursionError.
"""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer

from stackyard.core.errors import InputError, Where
from stackyard.inputs.reading.yamlfile import MOST_LEVELS, MOST_VALUES, too_large


def compose(text: str, file: str) -> Any:
    """The root of ruamel.yaml's nodes of a document, None for an empty one.

    Raises:
        InputError: more than `MOST_VALUES` values, or more than `MOST_LEVELS` levels.
        YAMLError: not valid YAML.
    """

    class BoundedComposer(Composer):
        values = 0
        levels = 0

        def __init__(self, loader: Any = None) -> None:
            super().__init__(loader)
            self.warn_double_anchors = False  # YAML lets an anchor be used again: an alias means the latest before it

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.values += 1
            self.levels += 1
            if self.values > MOST_VALUES or self.levels > MOST_LEVELS:
                raise self._beyond()
            node = super().compose_node(parent, index)
            self.levels -= 1
            return node

        def _beyond(self) -> InputError:
            many = self.values > MOST_VALUES
            mark = self.parser.peek_event().start_mark
            return too_large(
                f"more than {MOST_VALUES} values" if many else f"more than {MOST_LEVELS} levels",
                Where(file, mark.line + 1, mark.column + 1),
            )

    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = BoundedComposer
    return yaml.compose(text)
