"""Run by a stack's Python, with the stack's TensorBoard: the scalars of event files, as JSON on standard output.

    python -c TEXT '{"directories": [...], "tags": [...], "names": "a regular expression"}'

Prints ``{tag: [[step, wall time, value], ...]}``: the tags that are named or match, else the one with most values.
"""

import json
import re
import sys

MOST = 100_000
"""Values of one tag; of more TensorBoard takes a sample."""


def scalars(directory):
    # type: (str) -> dict[str, list[tuple[int, float, float]]]
    """Each tag with its values: of SummaryWriter, and of TensorFlow 2, which writes scalars as tensors."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(directory, size_guidance={"scalars": MOST, "tensors": MOST})
    events.Reload()
    tags = events.Tags()
    found = {tag: [(e.step, e.wall_time, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]}
    for tag in tags["tensors"]:
        arrays = [(e.step, e.wall_time, make_ndarray(e.tensor_proto)) for e in events.Tensors(tag)]
        if arrays and all(array.shape == () and array.dtype.kind in "fiu" for _, _, array in arrays):
            found[tag] = [(step, wall, float(array)) for step, wall, array in arrays]
    return found


def main():
    # type: () -> None
    """Read all directories; print what was asked for."""
    asked = json.loads(sys.argv[1])
    found = {}  # type: dict[str, list[tuple[int, float, float]]]
    for directory in asked["directories"]:
        for tag, rows in scalars(directory).items():
            found.setdefault(tag, []).extend(rows)
    names = re.compile(asked["names"], re.I)
    chosen = [tag for tag in found if tag in asked["tags"] or names.search(tag)]
    chosen = chosen or sorted(found, key=lambda tag: -len(found[tag]))[:1]
    json.dump({tag: sorted(found[tag])[:MOST] for tag in chosen[:50]}, sys.stdout)


if __name__ == "__main__":
    main()
