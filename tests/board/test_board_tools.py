"""Each tool of the table but TensorBoard, as a package index has it: it shows what its own library wrote."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from board.boardbed import asked, board, listening
from stackyard.core.errors import MissingError
from support import venvs
from support.cli import STACKYARD

WRITE = {
    "optuna-dashboard": """
import optuna
study = optuna.create_study(storage="sqlite:///study.db", study_name="resnet")
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
""",
    "mlflow": """
import os
os.environ.update(MLFLOW_ALLOW_FILE_STORE="true", MLFLOW_TRACKING_URI=os.path.abspath("mlruns"))
import mlflow
mlflow.set_experiment("resnet")
with mlflow.start_run():
    mlflow.log_metric("loss", 0.5)
""",
    "aim": """
import aim
run = aim.Run(repo=".", experiment="resnet")
run.track(0.5, name="loss")
run.close()
""",
}
WHERE = {
    "optuna-dashboard": ("study.db", "/api/studies"),
    "mlflow": (".", "/api/2.0/mlflow/experiments/get-by-name?experiment_name=resnet"),
    "aim": (".", "/api/experiments/"),
}


@pytest.mark.long
@pytest.mark.real
@pytest.mark.parametrize("tool", WRITE)
def test_a_tool_shows_what_its_library_wrote(tool: str, tmp_path: Path) -> None:
    try:
        python = venvs.python(tool)
    except MissingError as error:
        pytest.skip(error.message)
    (tmp_path / "b c").mkdir()
    subprocess.run([python, "-c", WRITE[tool]], check=True, cwd=tmp_path / "b c", capture_output=True)
    environ = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    name, path = WHERE[tool]

    def start(*words: str | Path, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(list(map(str, words)), text=True, env=environ, **options)  # type: ignore[call-overload, no-any-return]

    with board(start, STACKYARD, "board", tmp_path / "b c" / name, "--tool", tool) as shown:
        assert "resnet" in subprocess.run(asked(shown.socket, path), check=True, text=True, stdout=-1).stdout
        assert listening(shown.processes) == [] and len(shown.processes) >= 2
    shown.ended()
