"""The traces of JAX, TensorFlow and memray, by their own profilers, in unchanged programs with the probe."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from stackyard.launch.run.agentfile import probe_files
from stackyard.study.profiles.merge import merge
from study.test_merge import check, read
from support import venvs

pytestmark = pytest.mark.long
JAX = """
import sys, time, jax, jax.numpy as jnp
step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.tanh(x @ w).sum())(w))
w, x = jnp.ones((16, 16)), jnp.ones((4, 16))
for number in range(20):
    if "marked" in sys.argv:
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            w = step(w, x).block_until_ready()
    else:
        w = step(w, x).block_until_ready()
        time.sleep(0.05)
"""
TENSORFLOW = """
import sys, numpy, tensorflow as tf
x, y = numpy.random.rand(160, 16).astype("float32"), numpy.random.rand(160, 1).astype("float32")
if "keras" in sys.argv:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=8, verbose=0)
elif "data" in sys.argv:
    for a, b in tf.data.Dataset.from_tensor_slices((x, y)).batch(8):
        tf.reduce_mean(a @ tf.ones((16, 1)) - b)
"""
MARKS = """
import sys
from tensorflow.tsl.profiler.protobuf import xplane_pb2
space = xplane_pb2.XSpace()
space.ParseFromString(open(sys.argv[1], "rb").read())
for plane in space.planes:
    for line in plane.lines:
        for event in line.events:
            if plane.event_metadata[event.metadata_id].name == "train":
                stats = {plane.stat_metadata[stat.metadata_id].name: stat.int64_value for stat in event.stats}
                print(stats["step_num"])
"""


def traced(place: Path, package: str, name: str, program: str, *words: str, **options: Any) -> tuple[Path, str]:
    """A program with the probe; returns where its trace is, and what was printed."""
    try:
        python = venvs.python(package)
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    for directory in ("probe", "own"):
        (place / directory).mkdir(exist_ok=True)
    for file, text in probe_files().items():
        (place / "probe" / file).write_text(text)
    (place / "train.py").write_text(program)
    settings = {"output_dir": str(place / "profile" / name), **options}
    environ = {**os.environ, "PYTHONPATH": str(place / "probe"), "RANK": "3", "STACKYARD_DIR": str(place / "own"),
               f"STACKYARD_TRACE_{name.upper()}": json.dumps(settings)}  # fmt: skip
    done = subprocess.run([python, "train.py", *words], cwd=place, env=environ, capture_output=True, text=True,
                          check=False, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not list((place / "own").iterdir())
    return place / "profile" / name, done.stderr


def test_steps_of_jax(tmp_path: Path) -> None:
    out, _ = traced(tmp_path, "jax", "jax", JAX, "marked", steps=[10, 15])
    names = sorted(path.name for path in (out / "plugins" / "profile" / "stackyard").iterdir())
    assert names == ["rank-00003.trace.json.gz", "rank-00003.xplane.pb"]
    merge(tmp_path / "profile", tmp_path / "timeline.json.gz")
    events = read(tmp_path / "timeline.json.gz")
    check(events)
    steps = [event["args"]["step_num"] for event in events if event.get("name") == "train"]
    assert steps == ["10", "11", "12", "13", "14"]


def test_jax_without_steps(tmp_path: Path) -> None:
    out, err = traced(tmp_path, "jax", "jax", JAX, steps=[10, 15])
    assert not list(out.rglob("*.pb"))
    assert "no jax trace: the program ended after 0 steps, before step 10: it has no jax.profiler.StepTraceAn" in err
    out, _ = traced(tmp_path, "jax", "jax", JAX, delay=0.1, duration=0.3)
    assert [path.name for path in out.rglob("*.pb")] == ["rank-00003.xplane.pb"]


@pytest.mark.parametrize("kind", ["keras", "data"])
def test_steps_of_tensorflow(tmp_path: Path, kind: str) -> None:
    out, _ = traced(tmp_path, "tensorflow-cpu", "tensorflow", TENSORFLOW, kind, steps=[10, 15])
    (file,) = out.rglob("*.pb")
    assert file.name == "rank-00003.xplane.pb"
    python = venvs.python("tensorflow-cpu")
    done = subprocess.run([python, "-c", MARKS, file], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.split() == ["10", "11", "12", "13", "14"]


def test_tensorflow_without_steps(tmp_path: Path) -> None:
    _, err = traced(tmp_path, "tensorflow-cpu", "tensorflow", TENSORFLOW, steps=[10, 15])
    assert "no tensorflow trace: the program ended after 0 steps" in err


def test_allocations(tmp_path: Path) -> None:
    program = "kept = [bytearray(1000) for _ in range(20_000)]"
    out, _ = traced(tmp_path, "memray", "memray", program)
    python = venvs.python("memray")
    words = [python, "-m", "memray", "stats", "--json", "-o", tmp_path / "stats.json", "-f", out / "rank-00003.bin"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "stats.json").read_text())["total_num_allocations"] >= 20_000
