"""Whatever stands in a file: lint says something or nothing, it never fails and never hangs."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from stackyard.launch.request.job_file import job_text
from stackyard.lint import lint_text, to_intent

FOLDER = Path(__file__).parent.parent / "data" / "lint"
SCRIPTS = [path.read_text() for path in sorted([*(FOLDER / "good").iterdir(), *(FOLDER / "bad").glob("*.*")])]
PIECES = (
    '"', "'", "`", "$(", "${", "((", "{", "}", ")", "\\", "<<EOF\n", "|", "&", ";", "$((", "[[", "<(", "=(", "\x00",
    "\ue000", "\ue001", "\ufffd", "\r\n", "é\x85\u2028",
)  # fmt: skip
HEAD = "#!/bin/bash\n#SBATCH -N 2\n"


def checked(text: str) -> None:
    report = lint_text(text, name="job.sh")
    intent, notes = to_intent(report.script)
    assert job_text(intent, notes) and report.to_json()


def mutated(text: str, draw: random.Random) -> str:
    for _ in range(draw.randint(1, 5)):
        at = draw.randrange(len(text) + 1)
        end = min(len(text), at + draw.randint(1, 200))
        text = draw.choice(
            (
                text[:at],
                text[:at] + text[end:],
                text[:at] + draw.choice(PIECES) * draw.randint(1, 40) + text[at:],
                text[:at] + text[at:end] * draw.randint(2, 40) + text[at:],
                text.replace("\n", draw.choice(("\r\n", " ", "\\\n"))),
                text[:at] + draw.choice(SCRIPTS)[at:],
                text.replace(draw.choice("\"'(){}$"), ""),
            )
        )[:50_000]
    return text


@pytest.mark.parametrize("seed", range(60))
def test_damaged_scripts(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(3):
        checked(mutated(draw.choice(SCRIPTS), draw))


@pytest.mark.parametrize(
    "body",
    [
        "$(" * 20_000, "{ " * 20_000, '"' * 40_001, "x" * 1_000_000, "srun " + "a " * 20_000,
        "srun -n 2 ./a &\n" * 3000,
        "A=xy\n" + 'A="$A $A"\n' * 60 + "srun $A\n", "if a; then\n" * 8000, "cat <<E\n" * 8000, "srun bash -c '" * 2000,
    ],
    ids=["open", "deep", "quotes", "word", "line", "launches", "doubling", "branches", "here", "shells"],
)  # fmt: skip
def test_long_ones_end(body: str) -> None:
    began = time.monotonic()
    checked(HEAD + body)
    assert time.monotonic() - began < 20
