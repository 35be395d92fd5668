"""An exception that no rule knows is told with what usually causes its kind, read from the line that raised it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.doctor.logs.diagnose import EXCEPTION, Diagnosis, diagnose
from stackyard.doctor.logs.sources import log_sources
from stackyard.launch.run.causes.raised import IN_WORKER, raised_hint, usual

PACKAGES = "/opt/py/lib/python3.11/site-packages"
CASES = {
    "device_map is None there": (
        "AttributeError: 'NoneType' object has no attribute 'values'",
        'if offload is None and "disk" in device_map.values():',
    ),
    "self.pool.get(name) is None there": (
        "AttributeError: 'NoneType' object has no attribute 'start'",
        "await self.pool.get(name).start(now)",
    ),
    "does not have the form of the regular expression": (
        "AttributeError: 'NoneType' object has no attribute 'group'",
        "step = int(match.group(1))",
    ),
    "go through a copy": ("RuntimeError: dictionary changed size during iteration", "for task in self.tasks.values():"),
    "a tensor is where the code expects a number": ("TypeError: type Tensor doesn't define __round__ method", ""),
    "a value is None where a number": ("TypeError: '>' not supported between instances of 'NoneType' and 'int'", ""),
    "ratio is set in branches only": ("UnboundLocalError: local variable 'ratio' referenced before assignment", ""),
    "signal is neither imported nor defined": ("NameError: name 'signal' is not defined", ""),
    "was not in it": ("KeyError: 'kv_cache'", "self.tags.remove(tag)"),
    "saved by another version": ("KeyError: 'module.conv1.weight'", "return state[name]"),
    "a variable of the environment that is not set": ("KeyError: 'DATA'", 'path = os.environ["DATA"]'),
    "a setting, a column or an entry": ("KeyError: 'lr'", 'config["lr"]'),
    "fewer dimensions": ("IndexError: tuple index out of range", "columns = weight.shape[1]"),
    "fewer devices, nodes or ranks": ("IndexError: tuple index out of range", "torch.cuda.default_generators[i]"),
    "pg is None there": ("AssertionError", "assert pg is not None"),
    "the program requires size % 8 == 0": ("AssertionError", "assert size % 8 == 0"),
    "lr_old is zero": ("ZeroDivisionError: float division by zero", "correct = lr / lr_old"),
    "(torch, deepspeed)": (
        "TypeError: Agent.start() takes 3 positional arguments but 4 were given",
        f'a()\n  File "{PACKAGES}/deepspeed/agent.py", line 3, in run\n    agent.start(\n'
        f'  File "{PACKAGES}/torch/api.py", line 5, in start\n    self.start(a, b, c)',
    ),
    "not initialised before": ("AttributeError: 'Lib' object has no attribute 'solver'", "return self.solver"),
    "a plain Namespace is where": ("AttributeError: 'Namespace' object has no attribute 'fp16'", "args.fp16"),
    "larger than the layer": ("IndexError: Target 10 is out of bounds.", "loss = F.nll_loss(output, target)"),
    "never loaded": ("ValueError: weight is on the meta device, we need a `value` to put in on cpu.", ""),
    "the model is wrapped": ("AttributeError: 'DistributedDataParallel' object has no attribute 'generate'", ""),
}


def diagnosed(directory: Path, text: str) -> Diagnosis:
    file = directory / "job.log"
    file.write_text(text, encoding="utf-8")
    return diagnose(log_sources([str(file)]))


@pytest.mark.parametrize("hint", CASES)
@pytest.mark.parametrize("head", ["Traceback (most recent call last):\n", ""], ids=["whole", "without its head"])
def test_the_hint_fits_the_line_that_raised(hint: str, head: str, tmp_path: Path) -> None:
    """Of the traceback, and of its last lines alone, as users paste them."""
    raised, source = CASES[hint]
    diagnosis = diagnosed(tmp_path, f'{head}  File "/home/u/train.py", line 9, in main\n    {source}\n{raised}\n')
    if head or hint != "(torch, deepspeed)":
        assert (diagnosis.rule, hint in diagnosis.hint) == (EXCEPTION, True), diagnosis.hint
    assert "{" not in diagnosis.hint


def test_a_sample_is_to_blame_for_what_a_worker_raised(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    next(loader)\n'
        "TypeError: Caught TypeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        f'  File "{PACKAGES}/PIL/Tiff.py", line 8, in tobytes\n    count = len(value)\n'
        "TypeError: object of type 'int' has no len()\n"
    )
    assert diagnosed(tmp_path, text).hint.startswith(IN_WORKER)


STACK = """  File "/home/u/run.py", line 3, in main
    save(model)
  File "/home/u/save.py", line 7, in save
    os.makedirs(directory, exist_ok=True)
  File "<frozen os>", line 225, in makedirs
"""


def test_frames_at_the_end_of_a_log_are_the_rest_of_a_traceback(tmp_path: Path) -> None:
    """Neither its head nor the exception is in the log."""
    diagnosis = diagnosed(tmp_path, "step 1 loss 2\n" + STACK)
    assert diagnosis.cause.endswith("u/save.py:7 in save")
    assert "several ranks create it at the same time" in diagnosis.hint
    assert not diagnosed(tmp_path, STACK + "step 1 loss 2\nstep 2 loss 2\nstep 3 loss 1\n").failed


def test_every_row_has_words_and_needs_no_name_that_it_does_not_find() -> None:
    for row in usual():
        assert row.hint[0].islower() or row.hint.startswith("{"), row.hint
        assert "{what}" not in row.hint or "(?P<what>" in row.source, row.hint
        assert "{name}" not in row.hint or "(?P<name>" in row.raised.pattern, row.hint
    assert not raised_hint("mylib.BadSample: sample 17", [])
