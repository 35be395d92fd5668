"""examples/jupyterlab from PyPI: deployed, its server asked over HTTP, notebooks run in kernels, also in a browser."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sitebed import EXAMPLES

from support.browser import Browser, browser
from support.cli import STACKYARD, stackyard

pytestmark = [pytest.mark.real, pytest.mark.long]

TOKEN = "only-for-this-test"


@dataclass(frozen=True)
class Lab:
    """The published stack, and a user's home."""

    directory: Path

    @property
    def revision(self) -> Path:
        (found,) = (self.directory / "yard/stacks/jupyterlab").iterdir()
        return found

    @property
    def environ(self) -> dict[str, str]:
        commands = f"{self.revision}/commands"
        return {
            **os.environ,
            "HOME": str(self.directory),
            "JUPYTER_DATA_DIR": str(self.data),
            "PATH": f"{commands}:{os.defpath}",
        }

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def jupyter(self, *words: str) -> str:
        done = subprocess.run(["jupyter", *words], capture_output=True, text=True, check=True, env=self.environ)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    directory = tmp_path_factory.mktemp("lab")
    example = directory / "jupyterlab"
    example.mkdir()
    for name in ("stack.yaml", "requirements.txt"):
        (example / name).write_text((EXAMPLES / "jupyterlab" / name).read_text())
    locked = stackyard("--yard", directory / "yard", "lock", example / "stack.yaml", expect=None)
    if locked.code and "cannot be reached" in locked.err:
        pytest.skip(f"no package index: {locked.err}")
    stackyard("--yard", directory / "yard", "deploy", example / "stack.yaml", timeout_s=590)
    return Lab(directory)


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[str]:
    """The address of a running server."""
    words = ["jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    environ = {**lab.environ, "PATH": f"{Path(STACKYARD).parent}:{lab.environ['PATH']}"}  # a kernel is started by it
    with (lab.directory / "lab.log").open("w") as log:
        process = subprocess.Popen(
            [*words, f"--IdentityProvider.token={TOKEN}"], env=environ, cwd=lab.directory, stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + 120
        while not (found := list((lab.data / "runtime").glob("jpserver-*.json"))):
            assert process.poll() is None and time.monotonic() < until, (lab.directory / "lab.log").read_text()
            time.sleep(0.2)
        yield str(json.loads(found[0].read_text())["url"])
    finally:
        process.terminate()
        process.wait(30)


def _asked(url: str, *, token: str = TOKEN) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def test_it_has_the_extensions_and_nothing_was_built(lab: Lab) -> None:
    shown = lab.jupyter("labextension", "list")
    for name in ("jupyterlab-nvdashboard", "jupyterlab_tensorboard_pro", "@pyviz/jupyterlab_pyviz"):
        (line,) = (line for line in shown.splitlines() if f"{name} v" in line)
        assert "enabled" in line and "OK" in line
    assert not list((lab.revision / "prefix").glob("share/jupyter/lab/staging/node_modules"))


def test_its_server_answers_whoever_has_the_token(server: str, lab: Lab) -> None:
    stackyard("--yard", lab.directory / "yard", "kernel", "install", "jupyterlab", "--name", "served",
              JUPYTER_DATA_DIR=str(lab.data))  # fmt: skip
    page = _asked(f"{server}lab")
    assert "<title>JupyterLab</title>" in page and "jupyterlab_tensorboard_pro" in page
    assert "started" in json.loads(_asked(f"{server}api/status"))
    assert "served" in json.loads(_asked(f"{server}api/kernelspecs"))["kernelspecs"]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        _asked(f"{server}api/status", token="")


def test_a_notebook_runs_in_a_kernel_that_was_installed(lab: Lab) -> None:
    environ = {**lab.environ, "PATH": f"{Path(STACKYARD).parent}:{lab.environ['PATH']}"}
    stackyard("--yard", lab.directory / "yard", "kernel", "install", "jupyterlab", "--name", "own",
              JUPYTER_DATA_DIR=str(lab.data))  # fmt: skip
    code = (
        "import nbclient, nbformat\n"
        "book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell('import sys; print(sys.prefix)')])\n"
        "nbclient.NotebookClient(book, kernel_name='own', timeout=240).execute()\n"
        "print(book.cells[0].outputs[0]['text'], end='')"
    )
    python = lab.revision / "prefix/bin/python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, env=environ)
    assert done.stdout == f"{lab.revision}/prefix\n", done.stderr


SIGNALS = """\
name: signals
version: '1.0'
interpreter: {source: host}
environment: {dependencies: [{pip: [ipykernel, numpy]}]}
"""
CHOOSE = """\
const list = document.querySelector('.jp-Dialog select');
list.value = [...list.options].find(each => each.textContent === arguments[0]).value;
list.dispatchEvent(new Event('change', {bubbles: true}));
"""


def test_a_browser_runs_a_notebook_in_the_kernel_of_another_stack(server: str, lab: Lab, tmp_path: Path) -> None:
    """What a user does and sees: the kernel chosen in the dialog, all cells run from the menu, their output."""
    (lab.directory / "signals.yaml").write_text(SIGNALS)
    given = ("--yard", lab.directory / "yard")
    stackyard(*given, "deploy", lab.directory / "signals.yaml", timeout_s=300)
    stackyard(*given, "kernel", "install", "signals", JUPYTER_DATA_DIR=str(lab.data))
    cell = {"cell_type": "code", "id": "c1", "metadata": {}, "outputs": [], "execution_count": None}
    cell["source"] = "import sys, numpy\nprint(numpy.arange(4).sum(), sys.prefix)"
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (lab.directory / "wave.ipynb").write_text(json.dumps(book))
    with browser(tmp_path) as page:
        page.open(f"{server}lab/tree/wave.ipynb?token={TOKEN}")
        _choose_kernel(page, "signals 1.0-py3-1")
        page.click(".lm-MenuBar-itemLabel", "Run")
        page.click(".lm-Menu-itemLabel", "Run All Cells")
        seen = page.until("const e = document.querySelector('.jp-OutputArea-output'); return e && e.innerText")
    (prefix,) = lab.directory.glob("yard/stacks/signals/*/prefix")
    assert seen.split() == ["6", str(prefix)]


def _choose_kernel(page: Browser, name: str) -> None:
    page.until("return document.querySelector('.jp-Dialog select') !== null")
    page.script(CHOOSE, name)
    page.click(".jp-Dialog button.jp-mod-accept")
    page.until("return document.querySelector('.jp-Toolbar-kernelName')?.innerText.includes(arguments[0])", name)
