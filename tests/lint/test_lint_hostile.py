"""Whatever stands in a file: lint says something or nothing, it never fails and never hangs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stackyard.launch.request.job_file import job_text
from stackyard.lint.api import lint_text, to_intent

DIRECTORY = Path(__file__).parent.parent / "data" / "lint"
SCRIPTS = [path.read_text() for path in sorted([*(DIRECTORY / "good").iterdir(), *(DIRECTORY / "bad").glob("*.*")])]
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


LONG: dict[str, Callable[[int], str]] = {
    "open": lambda n: "$(" * n,
    "deep": lambda n: "{ " * n,
    "quotes": lambda n: '"' * (2 * n + 1),
    "word": lambda n: "x" * (50 * n),
    "line": lambda n: "srun " + "a " * n,
    "launches": lambda n: "srun -n 2 ./a &\n" * (n * 3 // 20),
    "doubling": lambda n: "A=xy\n" + 'A="$A $A"\n' * (n * 3 // 1000) + "srun $A\n",
    "branches": lambda n: "if a; then\n" * (n * 2 // 5),
    "here": lambda n: "cat <<E\n" * (n * 2 // 5),
    "shells": lambda n: "srun bash -c '" * (n // 10),
}


def cpu_seconds(text: str) -> float:
    began = time.process_time()
    checked(text)
    return time.process_time() - began


@pytest.mark.parametrize("kind", LONG)
def test_long_ones_cost_in_proportion(kind: str) -> None:
    """Four times the text costs about four times the work: sixteen times would be a quadratic reader."""
    short, long = (HEAD + LONG[kind](n) for n in (5_000, 20_000))
    checked(HEAD)
    growths = (cpu_seconds(long) / cpu_seconds(short) for _ in range(3))
    assert any(growth < 8 for growth in growths)
