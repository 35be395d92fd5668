"""What a person reads: findings before notes, one line said once, places that an editor opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import stackyard

JOB = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH -c 8\n#SBATCH -t 10\n"
    "srun ./a\nexport MASTER_ADDR=localhost\nsrun ./b\nsrun ./c\n"
)


def test_same_lines_together_findings_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(JOB)
    (tmp_path / "clean.sh").write_text("#!/bin/bash\n#SBATCH -t 10 -n 1\nsrun -n 1 ./a\n")
    done = stackyard("lint", tmp_path / "job.sh", tmp_path / "clean.sh", expect=3)
    rows = done.out.splitlines()
    assert rows[0].startswith("job.sh: Slurm, 2 nodes, 4 tasks per node")
    assert rows[1].startswith("job.sh:7: warning: MASTER_ADDR is localhost") and rows[1].endswith("[address-localhost]")
    assert rows[2] == "    | export MASTER_ADDR=localhost"
    note = next(at for at, row in enumerate(rows) if row.startswith("job.sh:6: note:"))
    assert rows[note + 2] == "    also job.sh:8 job.sh:9"
    assert "  1 warning, 3 notes" in rows and rows[-2:] == ["  clean", "2 scripts, 1 clean: 1 warning, 3 notes"]


def test_notes_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(JOB.replace("export MASTER_ADDR=localhost\n", ""))
    assert "note:" not in stackyard("lint", "--no-notes", tmp_path / "job.sh").out
    assert "note:" in stackyard("lint", tmp_path / "job.sh").out
