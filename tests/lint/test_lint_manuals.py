"""The tables of LSF, PBS, Flux and jsrun: a head or a launch that is refused, and a similar one that is taken."""

from __future__ import annotations

import pytest

from stackyard.lint.api import lint_text

TAGS = {"lsf": "#BSUB", "pbs": "#PBS", "flux": "# flux:"}
OF_THE_TABLES = ("options-together", "option-value", "option-without-value", "unknown-option")

TOGETHER = [
    *(("lsf", f"-{one} -K", f"-{one}") for one in ("I", "Ip", "IS", "ISp", "ISs", "Is", "IX")),
    ("lsf", "-I -Is", "-Is"),
    ("lsf", "-XF -IX", "-XF -I"),
    ("lsf", "-XF -K", "-K"),
    ("lsf", "-XF -r", "-XF -rn"),
    ("lsf", "-hostfile hosts -n 4", "-hostfile hosts -q long"),
    ("lsf", "-hostfile hosts -m hostA", "-m hostA -n 4"),
    ("lsf", '-hostfile hosts -R "span[ptile=4]"', '-n 8 -R "span[ptile=4]"'),
    ("lsf", "-hostfile hosts -ext GEOMETRY[]", "-n 8 -ext GEOMETRY[]"),
    ("lsf", "-hostfile hosts -extsched GEOMETRY[]", "-n 8 -extsched GEOMETRY[]"),
    ("lsf", "-r -rn", "-r"),
    ("lsf", "-i in -is in", "-is in"),
    ("lsf", "-o out -oo out", "-oo out -eo err"),
    ("lsf", "-e err -eo err", "-o out -e err"),
    ("lsf", "-N -Ne", "-Ne -B"),
    *(
        ("lsf", f"-{one} a -{other} b", f"-{one} a")
        for one, other in (("jsdl", "jsdl_strict"), ("json", "yaml"), ("json", "jsdl"), ("yaml", "jsdl_strict"))
    ),
    ("lsf", "-tty", "-Is -tty"),
    ("lsf", "-ti", "-w done(17) -ti"),
    ("lsf", "-datagrp design", "-data host:/a/b -datagrp design"),
    ("lsf", "-cn_mem 4", "-csm y -cn_mem 4"),
    ("lsf", "-csm n -cn_mem 4", "-csm y -n 5 -cn_mem 4"),
    ("pbs", "-l nodes=2:ppn=4 -l place=scatter", "-l select=2:ncpus=4 -l place=scatter"),
    *(
        ("pbs", f"-l {first} -l {one}=4", f"-l select=2:{one}=4 -l place=pack")
        for first in ("select=2", "place=pack")
        for one in ("aoe", "arch", "eoe", "host", "mem", "mpiprocs", "ncpus", "ompthreads", "vmem", "vnode")
    ),
    *(
        ("pbs", f"-L tasks=2:lprocs=4 -l {one}=4", f"-L tasks=2:lprocs=4:{one}=4 -l walltime=10")
        for one in ("mem", "ncpus", "nodes", "pmem", "procs", "pvmem", "size", "vmem")
    ),
    ("pbs", "-I -J 1-4", "-J 1-4"),
    ("pbs", "-I -t 1-4", "-t 1-4"),
    ("pbs", "-J 1-4 -r n", "-J 1-4 -r y"),
    ("pbs", "-i 10", "-t 0-99 -i 10"),
    ("flux", "-n 8 --exclusive", "-N 2 -n 8 --exclusive"),
]


def refused(text: str) -> list[str]:
    findings = lint_text(f"#!/bin/bash\n{text}", name="job.sh").findings
    assert all(each.remedy for each in findings if each.rule in OF_THE_TABLES)
    return [each.rule for each in findings if each.rule in OF_THE_TABLES and each.severity == "refused"]


@pytest.mark.parametrize(("kind", "bad", "good"), TOGETHER)
def test_options_of_a_head_together(kind: str, bad: str, good: str) -> None:
    assert set(refused(f"{TAGS[kind]} {bad}\n")) == {"options-together"}
    assert set(refused("".join(f"{TAGS[kind]} -{each}\n" for each in bad[1:].split(" -")))) == {"options-together"}
    assert refused(f"{TAGS[kind]} {good}\n") == []


RUN = [
    *(
        (f"--{one}=4 {other}=2", f"{other}=2")
        for one in ("ntasks", "cores-per-task", "gpus-per-task")
        for other in ("--cores=8 --tasks-per-node", "--nodes=2 --tasks-per-core", "--nodes=2 --gpus-per-node")
    ),
    ("-n 4 --cores=8", "--cores=8"),
    ("-N 2 --tasks-per-node=4 --tasks-per-core=1", "-N 2 --tasks-per-node=4"),
    ("-n 1 --cc=1-4 --bcc=1-4", "-n 1 --cc=1-4"),
    ("-n 4 --exclusive", "-N 2 -n 4 --exclusive"),
    ("--gpus-per-node=4", "-N 2 --gpus-per-node=4"),
    ("--tasks-per-node=4", "--cores=8 --tasks-per-node=4"),
    ("--tasks-per-core=2", "-N 2 --tasks-per-core=2"),
]


@pytest.mark.parametrize("program", ["flux run", "flux submit"])
@pytest.mark.parametrize(("bad", "good"), RUN)
def test_options_of_flux_run_together(program: str, bad: str, good: str) -> None:
    assert set(refused(f"# flux: -N 2\n{program} {bad} ./a.out\n")) == {"options-together"}
    assert refused(f"# flux: -N 2\n{program} {good} ./a.out\n") == []


def test_the_message_names_the_program_and_both_options() -> None:
    (found,) = lint_text("#!/bin/bash\n# flux: -N 1 -t 5\nflux submit -n 4 --cores=8 ./a\n").findings
    assert found.message == "flux submit does not take --cores and --ntasks together"
    assert found.remedy == "remove --cores or --ntasks"
    (found,) = lint_text("#!/bin/bash\n#PBS -l walltime=10 -l select=1 -l mem=4gb\n").findings
    assert found.message == "qsub does not take -l mem and -l select together"


@pytest.mark.parametrize(
    "head",
    ["#PBS -l place=scatter", "# flux: --exclusive", "# flux: --cores-per-slot=4", "# flux: --gpus-per-slot=1"],
)
def test_a_head_without_a_size_may_get_it_from_the_command_line(head: str) -> None:
    findings = lint_text(f"#!/bin/bash\n{head}\n").findings
    (found,) = (each for each in findings if each.rule == "options-together")
    assert found.severity == "note" and found.remedy.endswith(", here or on the command line")


def test_slots_of_flux_are_as_many_as_its_nodes() -> None:
    assert refused("# flux: -N 2 -c 8 -g 1\n") == [] == refused("# flux: -n 2 -c 8 -g 1\n")


VALUED = [
    ("lsf", "-core_isolation 6", "-core_isolation 5"),
    ("lsf", "-csm 1", "-csm y"),
    ("lsf", "-jsm on", "-jsm d"),
    ("lsf", "-step_cgroup on", "-step_cgroup n"),
    ("lsf", "-nnodes 0", "-nnodes 4"),
    ("lsf", "-smt four", "-smt 4"),
    ("pbs", "-c hourly", "-c periodic,interval=60"),
    ("pbs", "-c x=10", "-c w=10"),
    ("pbs", "-j y", "-j eo"),
    ("pbs", "-k on", "-k doe"),
    ("pbs", "-k d", "-k nd"),
    ("pbs", "-m ben", "-m bea"),
    ("pbs", "-m end", "-m n"),
    ("pbs", "-p 1024", "-p -1024"),
    ("pbs", "-r yes", "-r n"),
    ("pbs", "-R all", "-R oe"),
    ("pbs", "-l select=2 -l place=scater", "-l select=2 -l place=scatter:excl:group=rack"),
    ("pbs", "-l select=2,place=scatter:exc", "-l select=2,place=vscatter:exclhost"),
    ("flux", "-N 2-4", "-N 2"),
    ("flux", "-n 0", "-n 4"),
    ("flux", "-n 4 -c 1.5", "-n 4 -c 2"),
    ("flux", "-n 4 -g one", "-n 4 -g 0"),
    ("flux", "-n 4 --urgency=32", "-n 4 --urgency=31"),
    ("flux", "-n 4 --urgency=high", "-n 4 --urgency=hold"),
    ("flux", "-n 4 --flags=waitable,debgu", "-n 4 --flags=waitable,debug"),
]


@pytest.mark.parametrize(("kind", "bad", "good"), VALUED)
def test_values_of_a_head(kind: str, bad: str, good: str) -> None:
    assert refused(f"{TAGS[kind]} {bad}\n") == ["option-value"]
    assert refused(f"{TAGS[kind]} {good}\n") == []


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("jsrun -n 2 -b core ./a.out", "jsrun -n 2 -b proportional-packed:7 ./a.out"),
        ("jsrun -n 2 --bind=socket ./a.out", "jsrun -n 2 --bind=packed:smt:2 ./a.out"),
        ("jsrun -n 2 -d spread ./a.out", "jsrun -n 2 -d plane:4 ./a.out"),
        ("flux run -n 2 --urgency=99 ./a.out", "flux run -n 2 --urgency=$LEVEL ./a.out"),
        ("flux submit -n 2 --flags=quick ./a.out", "flux submit -n 2 --flags=waitable ./a.out"),
    ],
)
def test_values_of_a_launch(bad: str, good: str) -> None:
    assert refused(f"{bad}\n") == ["option-value"]
    assert refused(f"{good}\n") == []


@pytest.mark.parametrize("kind", ["lsf", "pbs", "flux"])
def test_what_is_filled_in_has_any_value(kind: str) -> None:
    name = {"lsf": "-csm", "pbs": "-j", "flux": "-N"}[kind]
    for hole in ("{{ value }}", "<value>", "@VALUE@", "$VALUE"):
        assert refused(f"{TAGS[kind]} {name} {hole}\n") == []


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("#BSUB -W 10 -n", "-n has no value: bsub rejects the directive"),
        ("#BSUB -P", "-P has no value: bsub rejects the directive"),
        ("#PBS -q", "-q has no value: qsub rejects the directive"),
        ("#PBS -l select=1 -A", "-A has no value: qsub rejects the directive"),
        ("# flux: -N 2 --queue", "--queue has no value: flux batch rejects the directive"),
        ("# flux: -N", "-N has no value: flux batch rejects the directive"),
    ],
)
def test_an_option_lacks_its_value(head: str, says: str) -> None:
    findings = lint_text(f"#!/bin/bash\n{head}\n").findings
    (found,) = (each for each in findings if each.rule == "option-without-value")
    assert (found.severity, found.message, found.remedy) == ("refused", says, f"{head} VALUE")


@pytest.mark.parametrize("head", ["#BSUB -n 4 -x", "#PBS -l select=1 -V", "#PBS -h", "# flux: -N 2 -x", "#BSUB -ti"])
def test_an_option_without_value_is_complete(head: str) -> None:
    assert "option-without-value" not in refused(f"{head}\n")


def test_an_option_of_flux_may_be_a_plugins() -> None:
    findings = lint_text("#!/bin/bash\n# flux: -N 1 -t 5\n# flux: --amd-gpumode=CPX\n").findings
    assert [(each.rule, each.severity) for each in findings] == [("unknown-option", "warning")]
