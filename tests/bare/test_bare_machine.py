"""The README's commands, as root on a Debian that has nothing but apt; then all that works without a network.

The tests are one story: each needs those before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pythons import check_python

from stackyard.core.errors import MissingError
from support import systems
from support.programs import table

pytestmark = [pytest.mark.bare, pytest.mark.real]

SUITE = "bookworm"
QUICK_S = 20
"""What may pass before a command says that it cannot reach the network; one try, and no minutes of waiting."""

COMPILERS = sorted(name for name in table() if re.fullmatch(r"gcc|g\+\+|mpi(cc|cxx)(\..*)?", name))
HELLO = r"""
#include <stdio.h>
int main(void) { printf("1 of 1\n"); return 0; }
"""
HELLO_MPI = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("%d of %d\n", rank + 1, size);
    MPI_Finalize();
    return 0;
}
"""


@pytest.fixture(scope="module")
def bare() -> Iterator[systems.System]:
    """The system, and with it this checkout's files."""
    try:
        with systems.debian(SUITE) as system:
            yield system
    except MissingError as error:
        pytest.skip(f"{error}; {(error.detail or '')[-300:]}")


def test_nothing_is_installed(bare: systems.System) -> None:
    found = bare.run("for each in python3 make gcc git bash-completion; do command -v $each; done", check=False)
    assert found.stdout == ""


def test_make_quickstart(bare: systems.System) -> None:
    readme = (systems.REPOSITORY / "README.md").read_text()
    assert "with `make` and nothing else" in readme and "\n$ make quickstart" in readme
    bare.succeeds("apt-get update -qq && apt-get install -y -qq --no-install-recommends make")
    assert "stackyard, version" in bare.succeeds("make install")
    shown = bare.succeeds("make quickstart")
    assert re.search(r"\) quickstart/1\.0\S*-1", shown) and "on 2 ranks as on one: yes" in shown


def test_the_systems_own_python(bare: systems.System) -> None:
    assert check_python(bare) == "3.11.2"


ENVIRONMENT = "export PATH=$PWD/.venv/bin:$PATH STACKYARD_HOME=$PWD/quickstart-yard; "
WITHOUT_NETWORK = {
    "list": "quickstart/1.0-py3-1",
    "show quickstart": "numpy",
    "why quickstart numpy": "numpy",
    "verify quickstart": "passed",
    "run quickstart -- python -c 'import numpy; print(numpy.ones(3).sum())'": "3.0",
    "deploy examples/quickstart/stack.yaml": "quickstart/1.0-py3-1 is published",
    "launch --with quickstart -r 2 --launcher mpich --oversubscribe examples/quickstart/heat.py": "as on one: yes",
    "runs": "heat.py",
    "lock examples/quickstart/stack.yaml": "",
}


@pytest.mark.parametrize("words", WITHOUT_NETWORK)
def test_without_a_network(bare: systems.System, words: str) -> None:
    assert WITHOUT_NETWORK[words] in bare.succeeds(f"{ENVIRONMENT} stackyard {words}", offline=True)


def test_a_locked_stack_is_built_from_the_cache_alone(bare: systems.System) -> None:
    bare.succeeds("cp -r examples/quickstart /tmp/second && sed -i 's/^name: .*/name: second/' /tmp/second/stack.yaml")
    words = "deploy --locked /tmp/second/stack.yaml && stackyard run second -- python -c 'import numpy'"
    assert "second/1.0-py3-1  published" in bare.succeeds(f"{ENVIRONMENT} stackyard {words}", offline=True)


@pytest.mark.parametrize("name,text,host", [
    ("requirements.txt", "idna\n", "the index"),
    ("environment.yml", "channels: [conda-forge]\ndependencies: [zlib]\n", "the channel conda-forge"),
])  # fmt: skip
def test_what_needs_the_network_says_so_at_once(bare: systems.System, name: str, text: str, host: str) -> None:
    bare.succeeds(f"mkdir -p /tmp/new && printf '{text}' > /tmp/new/{name}")
    done = bare.run(f"{ENVIRONMENT} stackyard deploy /tmp/new/{name}", offline=True, check=False)
    assert done.returncode == 1 and re.search(
        rf"error: /tmp/new/{name}:\d+:\d+: {host} \S+ cannot be reached", done.stderr
    ), done.output
    assert "hint: " in done.stderr and done.seconds < QUICK_S


def test_all_programs_of_the_tests_can_be_installed(bare: systems.System) -> None:
    bare.succeeds("STACKYARD_REQUIRE_REAL=1 scripts/test-programs.sh && scripts/test-programs.sh", timeout_s=1200)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_each_compiler_compiles_what_runs(bare: systems.System, compiler: str) -> None:
    """A header or a library that only a recommended package brings would be missing here."""
    mpi = compiler.startswith("mpi")
    source = "hello.cc" if compiler.startswith(("g++", "mpicxx")) else "hello.c"
    (bare.root / "tmp" / source).write_text(HELLO_MPI if mpi else HELLO)
    launcher = ("mpiexec.mpich -n 2" if "mpich" in compiler else "mpirun.openmpi --oversubscribe -n 2") if mpi else ""
    allowed = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    script = f"{compiler} -o /tmp/hello /tmp/{source} && env {allowed} {launcher} /tmp/hello"
    lines = sorted(line for line in bare.succeeds(script).splitlines() if re.fullmatch(r"\d of \d", line))
    assert lines == (["1 of 2", "2 of 2"] if mpi else ["1 of 1"])
