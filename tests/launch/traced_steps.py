"""Trains in every way that has steps, traced: ``traced_steps.py PROBE OUT``; prints a JSON line for each."""

import _thread
import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
import types
from importlib.machinery import SourceFileLoader
from itertools import islice

import torch

PROBE, OUT = sys.argv[1:3]
probe = sys.modules["stackyard_probe"] = types.ModuleType("stackyard_probe")  # as sitecustomize.py does it
SourceFileLoader("stackyard_probe", os.path.join(PROBE, "listen.py")).exec_module(probe)
trace = probe.get(PROBE).trace("torch")
torch.set_num_threads(1)
model = torch.nn.Linear(16, 16)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(80, 16)), batch_size=8)


def loss():
    return model(torch.randn(8, 16)).pow(2).mean()


def train(steps, step):
    for _ in range(steps):
        model.zero_grad()
        loss().backward()
        step()


def horovods():
    """Horovod's optimizer is of a class made from that of yours; its step() calls the inherited one."""

    class Distributed(torch.optim.Optimizer):
        def __init__(self, params):
            super(self.__class__, self).__init__(params, lr=0.1)

        def step(self, closure=None):
            return super(self.__class__, self).step(closure)

    return type("SGD", (torch.optim.SGD,), dict(Distributed.__dict__))(model.parameters())


def plain(steps=30):
    train(steps, torch.optim.SGD(model.parameters(), lr=0.1).step)


def horovod():
    train(13, horovods().step)


def two_optimizers():
    first, second = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
    train(13, lambda: (first.step(), second.step()))


def closures():
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)

    def closure():
        model.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(13):
        optimizer.step(closure)


def one_that_fails():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fails():
        raise ValueError("out of memory")

    with contextlib.suppress(ValueError):
        optimizer.step(fails)
    train(13, optimizer.step)


def batches_without_an_optimizer():
    for _ in range(7):
        for (batch,) in islice(loader, 2):
            model(batch)


def batches_before_the_optimizer():
    for (batch,) in loader:
        batch.mean()
    plain(13)


def no_steps():
    for _ in range(30):
        loss()


def too_few():
    plain(5)


def cut_off():
    plain(13)


def run(name, program, **options):
    trace.start({"rank": 0, "output_dir": os.path.join(OUT, name), "steps": [10, 15], **options})
    program()
    print(json.dumps({"name": name, "running": trace.running(), **trace.stop()}), flush=True)


def warned():
    plain(13)
    os.kill(os.getpid(), signal.SIGUSR1)  # the job's time is about to end
    warned.running = trace.running()
    plain()


def full_disk():
    """The file that torch writes ends early, of which it says nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    plain()
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def asked(name, steps, program, **options):
    """As the probe's own thread does it, while the program runs; it ends while the main thread is busy in C."""

    def thread():
        time.sleep(0.3)
        try:
            trace.start({"rank": 0, "output_dir": os.path.join(OUT, name), "steps": steps, **options})
        except ValueError as error:
            print(json.dumps({"name": name, "refused": str(error)}), flush=True)
        else:
            time.sleep(1)
            print(json.dumps({"name": name, **trace.stop()}), flush=True)
        ended.set()

    ended = threading.Event()
    _thread.start_new_thread(thread, ())
    program()
    ended.wait(60)


def for_a_while():
    optimizer, until = torch.optim.SGD(model.parameters(), lr=0.1), time.monotonic() + 0.8
    while time.monotonic() < until:
        train(1, optimizer.step)
        time.sleep(0.01)


for one in (plain, horovod, two_optimizers, closures, one_that_fails, batches_without_an_optimizer,
            batches_before_the_optimizer, no_steps, too_few, cut_off, warned, full_disk):  # fmt: skip
    run(one.__name__, one)
assert warned.running is False
run("shapes", plain, shapes=True, memory=True)
run("other_rank", plain, ranks=[1])  # not this one
os.environ["RANK"] = "1"
run("of_task", plain, ranks=[1])
open(os.path.join(OUT, "file"), "w").close()
run("file/no-directory", plain)
del one
asked("running", [0, 4], for_a_while)
asked("seconds", None, for_a_while, seconds=0.3)
asked("without", [0, 4], lambda: time.sleep(0.5))
