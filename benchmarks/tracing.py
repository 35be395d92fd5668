"""What `--profile torch` costs a step outside of the recorded ones: CPU seconds of steps before and after, by pairs."""

from __future__ import annotations

import json
import subprocess

from benchmarks.measure import Figure
from benchmarks.tools import REPOSITORY, scratch
from stackyard.study.statistics.ratios import compare_all

PAIRS, MOST = 8, 1.02
PROGRAM = """
import json, sys, time, types
from importlib.machinery import SourceFileLoader
import torch
probe = sys.modules["stackyard_probe"] = types.ModuleType("stackyard_probe")  # as sitecustomize.py does it
SourceFileLoader("stackyard_probe", sys.argv[1] + "/listen.py").exec_module(probe)
trace = probe.get(sys.argv[1]).trace("torch")
torch.set_num_threads(1)
layers = [layer for _ in range(12) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def cpu_s(steps):
    began = time.process_time()
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(64, 256)).pow(2).mean().backward()
        optimizer.step()
    return time.process_time() - began

def before():
    trace.start({"rank": 0, "output_dir": sys.argv[2], "steps": [10**6, 10**6 + 1]})

def after():
    trace.start({"rank": 0, "output_dir": sys.argv[2], "steps": [0, 3]})
    cpu_s(5)
    assert not trace.running()

cpu_s(50)
for pair in range(int(sys.argv[3])):
    line = {}
    for name, begin in (("before", before), ("after", after)):
        plain = outside = 0.0
        for block in range(20):  # in turn, in small blocks, so that both see the same machine
            def traced():
                begin()
                taken = cpu_s(20)
                trace.stop()
                return taken
            if (pair + block) % 2:
                plain += cpu_s(20)
                outside += traced()
            else:
                outside += traced()
                plain += cpu_s(20)
        line[name] = [plain, outside]
    print(json.dumps(line), flush=True)
"""


def measure(pairs: int = PAIRS) -> list[Figure]:
    """400 steps of a small model in each value, without a trace and outside of its recorded steps."""

    from support import torchstack

    python = torchstack.python(torchstack.torch_yard())
    with scratch("tracing") as directory:
        probe = REPOSITORY / "src" / "stackyard" / "launch" / "probe"
        words = [python, "-c", PROGRAM, probe, directory / "out", str(pairs)]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [_figure(name, [tuple(line[name]) for line in lines]) for name in ("before", "after")]


def _figure(name: str, pairs: list[tuple[float, float]]) -> Figure:
    ratios = tuple(outside / plain for plain, outside in pairs)
    compared = compare_all({name: pairs})[name]
    note = f"{compared.text}; ratio {compared.ratio.value:.4f}, {compared.ratio.low:.4f} to {compared.ratio.high:.4f}"
    cpu_ms = sum(plain for plain, _ in pairs) / len(pairs) / 400 * 1000
    return Figure(f"a step {name} the traced ones", "without a trace", ratios, MOST, note=note,
                  absolute=f"{cpu_ms:.2f} ms of CPU")  # fmt: skip
