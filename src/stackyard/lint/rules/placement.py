"""Rules on where programs and data of a job are: nodes without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stackyard.core.findings import counted
from stackyard.lint.launches import python_program
from stackyard.lint.request import number
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import shown


@rule(
    "other-schedulers-launcher",
    why="The program is of another scheduler: it finds no job, or asks its own for a new one",
    example="#PBS -l select=2\nsrun ./a.out",
    instead="#PBS -l select=2\nmpiexec ./a.out",
)
def other_schedulers_launcher(case: Case) -> Iterator[Hit]:
    """srun in a job of PBS, LSF or Grid Engine; jsrun outside LSF."""
    at_home = {"srun": ("slurm", "flux"), "jsrun": ("lsf",)}
    heads = {directive.kind for directive in case.script.directives}
    for launch in case.script.launches:
        homes = at_home.get(launch.kind)
        if homes and case.script.scheduler and not heads & {*homes} and not launch.remote and not case.script.own:
            yield Hit(launch.line, f"{launch.word} is not of the scheduler of this script's head", "mpiexec ...")
            return


@rule(
    "mpirun-in-container",
    why="Inside a container mpirun starts all ranks on the first node: it cannot start a container on the others",
    example="#SBATCH --nodes=2\napptainer exec image.sif mpirun ./a.out",
    instead="#SBATCH --nodes=2\nmpirun apptainer exec image.sif ./a.out",
)
def mpirun_in_container(case: Case) -> Iterator[Hit]:
    """mpirun in a container that the script starts on the first of several nodes; srun in a container."""
    nodes = case.nodes or 0
    for launch in case.launches:
        inside = launch.via and launch.via[-1].kind == "container" and not launch.ranks_of and not launch.remote
        if inside and launch.kind == "srun":
            yield Hit(
                launch.line, "srun is of the host, and not in the image", f"srun {launch.via[-1].word} exec IMAGE ..."
            )
        if inside and launch.kind == "mpirun" and nodes > 1:
            yield Hit(launch.line, f"{launch.word} runs inside a container on the first of {nodes} nodes",
                      f"{launch.word} {launch.via[-1].word} exec IMAGE ...")  # fmt: skip


_LOCAL = (
    r"(?:\$\{?(?:TMPDIR|SLURM_TMPDIR|LOCAL_SCRATCH|PBS_JOBFS|TMP)\}?|/dev/shm|/tmp"
    r"|/local(?:scratch|_scratch)?|/scratch/local)"
)


_COPIES = ("cp", "rsync", "tar", "unzip", "unsquashfs", "wget", "curl", "mv")


@rule(
    "copied-to-first-node",
    why="The batch script runs on the first node: what it copies to a local disk is missing on the others",
    example="#SBATCH --nodes=2\ncp -r data $TMPDIR\nsrun python train.py --data $TMPDIR/data",
    instead="#SBATCH --nodes=2\nsrun -N 2 -n 2 cp -r data $TMPDIR\nsrun python train.py --data $TMPDIR/data",
)
def copied_to_first_node(case: Case) -> Iterator[Hit]:
    """A copy to the first node's disk, which a step on several nodes reads."""
    if not case.nodes or case.nodes < 2:
        return
    used = [(launch, _local(launch.words)) for launch in case.steps if (case.step(launch).nodes or 0) > 1]
    steps = {id(launch.command) for launch in case.script.launches}
    for command in case.script.commands:
        name = command.argv[0] if command.argv and id(command) not in steps else ""
        target = command.argv[-1:] if name in _COPIES else command.argv[1:] if _writes(command) else ()
        paths = _local([*target, *(word.raw for operator, word in command.command.redirects if ">" in operator)])
        for launch, words in used if name not in _READERS else ():
            shared = next(
                (path for path in paths if any(word.startswith(path) or path.startswith(word) for word in words)), ""
            )
            if shared and launch.line > command.line:
                text = f"{shown(name)} writes to the disk of the first of {case.nodes} nodes"
                yield Hit(command.line, text, f"srun -N {case.nodes} -n {case.nodes} {shown(name)} ..., or sbcast")
                return


_READERS = ("cd", "echo", "ls", "rm", "export", "[", "test", "source", ".", "cat", "du", "df", "module", "trap", "")


def _writes(command: ResolvedCommand) -> bool:
    """Whether a program that the script starts itself may write what its arguments name."""
    return bool(command.argv) and (command.argv[0] == "mkdir" or python_program(command.argv) is not None)


def _local(words: Iterable[str]) -> list[str]:
    """The paths on a node's own disk among words, ``--out=/tmp/x`` included."""
    texts = (shown(word).strip("\"'").rpartition("=")[2] for word in words)
    return [text.rstrip("/") for text in texts if re.match(rf"{_LOCAL}(?=/|$)", text)]


@rule(
    "ray-in-part-of-node",
    why="A step of one task has the cores of that task: what Ray starts there shares them, whatever it is told",
    example="#SBATCH --ntasks-per-node=4 --cpus-per-task=4\nsrun -N1 -n1 ray start --num-cpus 16 --block",
    instead="#SBATCH --ntasks-per-node=1 --cpus-per-task=16\nsrun -N1 -n1 -c16 ray start --num-cpus 16 --block",
)
def ray_in_part_of_node(case: Case) -> Iterator[Hit]:
    """``ray start`` in a step of one task, in a job with several tasks on each node."""
    tasks, cores = case.head_tasks_per_node or 1, case.script.request.cpus_per_task or 1
    for launch in case.script.launches:
        outer = launch.ranks_of if launch.kind == "ray" else None
        if outer and outer.kind == "srun" and outer.count("ntasks") == 1 and tasks > 1 \
                and not outer.given("exclusive", "cpus-per-task", "overlap", "mem"):  # fmt: skip
            text = f"this step of one task has {counted(cores, 'core')} of the {tasks * cores} of its node"
            yield Hit(launch.line, text, f"#SBATCH --ntasks-per-node=1 --cpus-per-task={tasks * cores}")
            return


@rule(
    "image-for-each-task",
    "note",
    why="Each task downloads and converts the image, and they write to the same cache at the same time",
    example="srun -n 8 apptainer exec docker://pytorch/pytorch python train.py",
    instead="apptainer pull pytorch.sif docker://pytorch/pytorch\nsrun -n 8 apptainer exec pytorch.sif python train.py",
)
def image_for_each_task(case: Case) -> Iterator[Hit]:
    """An image of a registry that several tasks run."""
    for launch in case.launches:
        outer = launch.ranks_of if launch.kind == "container" else None
        words = " ".join(launch.words)
        match = re.search(r"(?:docker|oras|library|shub)://\S+", words)
        if outer and match and (case.step(outer).tasks or 0) > 1 and launch.word.rsplit("/", 1)[-1] != "shifter":
            yield Hit(launch.line, f"{case.step(outer).tasks} tasks pull {match[0]}",
                      f"{launch.word} pull IMAGE.sif {match[0]}")  # fmt: skip
            return


_INSTALLS = re.compile(
    r"(?:\S*python\S* -m )?\S*pip3? install\b|uv (?:sync|pip install|run (?!.*--(?:no-sync|frozen)))"
)


@rule(
    "pip-in-each-task",
    why="Several tasks install the same packages into the same directory at the same time: some of them fail",
    example="srun -n 8 bash -c 'pip install -r requirements.txt && python train.py'",
    instead="pip install -r requirements.txt\nsrun -n 8 python train.py",
)
def pip_in_each_task(case: Case) -> Iterator[Hit]:
    """pip install, or ``uv run`` with its synchronisation, in a step with several tasks, or in each of an array."""
    if "array" in case.script.request.values and "TMPDIR" not in case.script.code:
        for command in case.script.commands:
            if _INSTALLS.match(shown(" ".join(command.argv))) and command.argv[:2] != ("uv", "run"):
                yield Hit(command.line, "every task of the array installs packages into the same place",
                          "install before the array is submitted", "note")  # fmt: skip
                return
    for launch in case.steps:
        inner = [" ".join(command.resolved.argv) for command in case.script.inner if command.launch is launch]
        texts = [" ".join(launch.program), *inner, *(" ".join(command.argv) for command in case.worker(launch))]
        if (case.step(launch).tasks or 0) > 1 and any(_INSTALLS.match(text) for text in texts):
            run = all(not _INSTALLS.match(text) or text.startswith("uv run") for text in texts)  # it may be up to date
            yield Hit(launch.line, f"{case.step(launch).tasks} tasks install packages", "install before the launch",
                      "note" if run else None)  # fmt: skip
            return


@rule(
    "ranks-half-of-slots",
    "note",
    why="The job is charged for cores that no rank uses",
    example="#PBS -l select=2:ncpus=8:mpiprocs=8\nmpirun -np 8 ./a.out",
    instead="#PBS -l select=2:ncpus=8:mpiprocs=8\nmpirun -np 16 ./a.out",
)
def ranks_half_of_slots(case: Case) -> Iterator[Hit]:
    """mpirun with at most half of the slots of a job of PBS, one thread each."""
    request = case.script.request
    slots = request.all_tasks if case.script.scheduler == "pbs" else None
    for launch in case.steps if len(case.steps) == 1 and slots else ():
        ranks, threads = launch.count("np"), launch.environment.get("OMP_NUM_THREADS")
        one = threads is None or threads.text == "1"
        if (
            launch.kind == "mpirun"
            and ranks
            and slots
            and ranks * 2 <= slots
            and one
            and not launch.given("ppn", "map-by")
        ):
            yield Hit(launch.line, f"{ranks} ranks in {slots} slots", f"mpirun -np {slots} ...")


@rule(
    "slots-without-mpiprocs",
    "note",
    why="Without mpiprocs the list of hosts has each chunk once: Open MPI finds one slot in it, and stops",
    example="#PBS -l select=2:ncpus=8\nmpirun -np 16 ./a.out",
    instead="#PBS -l select=2:ncpus=8:mpiprocs=8\nmpirun -np 16 ./a.out",
)
def slots_without_mpiprocs(case: Case) -> Iterator[Hit]:
    """mpirun with more ranks than chunks, in a job of PBS that says nothing of ranks."""
    select = case.script.request.values.get("l.select") or ""
    chunks = case.script.request.nodes
    plain = (case.script.request.values.get("l.nodes") or "").isdecimal()  # Torque: one slot of each node
    for launch in case.steps if (("ncpus" in select and "mpiprocs" not in select) or plain) and chunks else ():
        ranks = launch.count("np")
        listed = launch.given("hostfile") and "PBS_NODEFILE" not in (launch.get("hostfile") or "")
        own = launch.given("ppn", "map-by", "host", "oversubscribe") or launch.doubtful or listed
        if launch.kind == "mpirun" and ranks and chunks and ranks > chunks and not own:
            yield Hit(launch.line, f"{ranks} ranks, and {counted(chunks, 'slot')} in the list of hosts",
                      f"-l select={select.partition('+')[0]}:mpiprocs={-(-ranks // chunks)}")  # fmt: skip


@rule(
    "hosts-by-hand",
    "note",
    why="The scheduler chooses the nodes: on any other node mpirun fails, or disturbs another job",
    example="#SBATCH --nodes=2\nmpirun -H node01,node02 -np 8 ./a.out",
    instead="#SBATCH --nodes=2\nmpirun -np 8 ./a.out",
)
def hosts_by_hand(case: Case) -> Iterator[Hit]:
    """Names of hosts in a job that does not request these."""
    fixed = case.script.request.values.keys() & {"nodelist", "m", "requires"}
    for launch in case.launches if case.script.is_batch and not fixed else ():
        hosts = launch.get("host") or launch.get("hosts") or "" if launch.kind in ("mpirun", "horovodrun") else ""
        file = launch.get("hostfile") or "" if launch.kind == "mpirun" else ""
        plain = (
            re.fullmatch(r"(?!/dev/)[\w./-]+", file)
            and case.script.code.count(file if "/" in file else f" {file}") == 1
        )
        if re.fullmatch(r"\$\{?SLURM_(?:JOB_)?NODELIST\}?", shown(file)):
            yield Hit(launch.line, f"{shown(file)} is a list of names, not a file", "leave it out", "warning")
        if plain and case.script.scheduler in ("slurm", "pbs", "lsf"):
            yield Hit(launch.line, f"{launch.word} takes its hosts from {file}, which this script does not write",
                      "leave it out: mpirun asks the scheduler")  # fmt: skip
            return
        if re.match(r"[A-Za-z][\w.-]*\d", hosts) and not re.match(r"localhost", hosts):
            yield Hit(launch.line, f"{launch.word} names its hosts: {hosts.split(',')[0]}", "leave them out")
            return


@rule(
    "threads-on-one-core",
    why="Open MPI binds each rank to one core: all its threads run there",
    example="export OMP_NUM_THREADS=8\nmpirun -np 8 --bind-to core ./a.out",
    instead="export OMP_NUM_THREADS=8\nmpirun -np 8 --map-by slot:PE=8 --bind-to core ./a.out",
)
def threads_on_one_core(case: Case) -> Iterator[Hit]:
    """``mpirun --bind-to core``, or ``--map-by core``, without ``PE=`` and several threads in each rank."""
    for launch in case.launches:
        value = launch.environment.get("OMP_NUM_THREADS")
        words = " ".join(launch.words[: len(launch.words) - len(launch.program)])
        bound = re.search(r"-(?:bind-to|map-by)[ =]core\b|--?bycore\b", words) and not re.search(
            r"(?i)pe=|cpus-per-(?:proc|rank)|-bind-to[ =](?!core)", words
        )
        if launch.kind == "mpirun" and bound and value and value.text.isdecimal() and int(value.text) > 1:
            yield Hit(launch.line, f"{value.text} threads on one core", f"--map-by slot:PE={value.text}")


@rule(
    "flux-on-first-node",
    why="flux start makes an instance of the nodes on which it is started: without a launcher that is one",
    example="#SBATCH --nodes=4\nflux start ./workflow.sh",
    instead="#SBATCH --nodes=4\nsrun -N 4 -n 4 flux start ./workflow.sh",
)
def flux_on_first_node(case: Case) -> Iterator[Hit]:
    """``flux start`` that the script itself runs, in a job with several nodes."""
    nodes = case.nodes or 0
    for command in case.script.commands if nodes > 1 else ():
        if command.argv[:2] == ("flux", "start") and not any(
            "--test-size" in word or word == "-s" for word in command.argv
        ):
            first = "srun" if case.script.scheduler == "slurm" else "mpiexec"
            yield Hit(command.line, f"flux starts on the first of {nodes} nodes", f"{first} -n {nodes} flux start ...")


@rule(
    "ray-head-alone",
    why="Ray uses the nodes on which it is started: a head alone is one node",
    example="#SBATCH --nodes=2\nray start --head\npython train.py",
    instead="ray symmetric-run, or srun ... ray start --address for the other nodes",
)
def ray_head_alone(case: Case) -> Iterator[Hit]:
    """``ray start --head`` on several nodes, and no worker."""
    rays = [launch for launch in case.launches if launch.kind == "ray"]
    others = re.search(
        r"ray start[^\n]*--address|symmetric-run|ray\.sub|--address|ray_init|start-worker|worker", case.script.code
    )
    if rays and (case.nodes or 0) > 1 and not others and not any(ray.via for ray in rays):
        yield Hit(rays[0].line, f"ray starts on the first of {case.nodes} nodes", "srun ... ray start --address=HEAD")


@rule(
    "queue-of-gpus-without-gpus",
    "note",
    why="Where a queue does not give its GPUs by itself, a job without a request sees none",
    example="#SBATCH --partition=gpu\napptainer exec --nv train.sif python train.py",
    instead="#SBATCH --partition=gpu\n#SBATCH --gres=gpu:1\napptainer exec --nv train.sif python train.py",
)
def queue_of_gpus_without_gpus(case: Case) -> Iterator[Hit]:
    """A job that looks as if it used GPUs, and requests none."""
    request, code = case.script.request, case.script.code
    if case.script.scheduler != "slurm" or request.names_gpus or case.script.is_filled_in or case.script.foreign:
        return
    named = re.search(r"gpu|a100|v100|h100|cuda", request.queue, re.I)
    uses = re.search(
        r"nvidia-smi|\s--nv\s|module\s+load\s[^\n]*\bcuda|--device[= ]cuda|--gpus?[= ]\d|nproc_per_node", code
    )
    if (named and (uses or re.search(r"\bpython", code))) or (uses and re.search(r"\s--nv\s", code)):
        if request.exclusive or (request.values.keys() & {"constraint", "reservation", "qos"} and not named):
            return
        yield Hit(request.line("partition"), "no GPU is requested", "#SBATCH --gres=gpu:1")


@rule(
    "threads-over-chunk",
    why="Ranks times threads are more than the cores of the chunk: they share cores",
    example="#PBS -l select=2:ncpus=36:mpiprocs=36:ompthreads=2",
    instead="#PBS -l select=2:ncpus=36:mpiprocs=18:ompthreads=2",
)
def threads_over_chunk(case: Case) -> Iterator[Hit]:
    """A chunk of PBS with fewer cores than mpiprocs times ompthreads, or than ranks times depth of an mpiexec."""
    match = re.search(r"ncpus=(\d+)", case.script.request.values.get("l.select") or "")
    cores = int(match[1]) if match else 0
    for launch in case.steps if cores else ():
        sizes = dict(re.findall(r"--?(ppn|depth|d)[ =](\d+)", " ".join(launch.words)))
        used = int(sizes.get("ppn") or 0) * int(sizes.get("depth") or sizes.get("d") or 1)
        if cores and launch.kind == "mpirun" and used > cores:
            yield Hit(
                launch.line, f"{sizes['ppn']} ranks take {used} of the {cores} cores of a node", "a lower --depth"
            )
    for chunk in (case.script.request.values.get("l.select") or "").split("+"):
        sizes = dict(re.findall(r"(ncpus|mpiprocs|ompthreads)=(\d+)", chunk))
        threads = int(sizes.get("mpiprocs", 0)) * int(sizes.get("ompthreads", 1))
        if "ncpus" in sizes and threads > int(sizes["ncpus"]):
            yield Hit(case.script.request.line("l.select"), f"{threads} threads on {sizes['ncpus']} cores",
                      f"mpiprocs={max(1, int(sizes['ncpus']) // int(sizes.get('ompthreads', 1)))}")  # fmt: skip
            return


@rule(
    "broker-for-each-slot",
    "note",
    why="One broker of Flux serves a node: with one for each slot Flux sees as many nodes, of one core each",
    example="#PBS -l ncpus=96\nmpirun flux start ./workflow.py",
    instead="#PBS -l ncpus=96\nmpirun --map-by ppr:1:node flux start ./workflow.py",
)
def broker_for_each_slot(case: Case) -> Iterator[Hit]:
    """``flux start`` by mpirun without a number, or by several tasks on each node."""
    for launch in case.launches:
        if launch.program[:2] != ("flux", "start"):
            continue
        plain = launch.kind == "mpirun" and not launch.given("np", "ppn", "map-by", "npernode", "pernode", "hostfile")
        several = launch.kind == "srun" and (case.step(launch).per_node or 1) > 1
        if (plain or several) and not launch.doubtful:
            yield Hit(launch.line, "flux starts once for each slot, and not for each node", "one task on each node")
            return


_ONE_HOST = re.compile(r"span\[\s*(?:hosts\s*=\s*1|ptile)", re.I)


@rule(
    "slots-on-several-hosts",
    why="Without a rule on nodes the scheduler takes cores where they are free: a program without MPI uses one host's",
    example="#SBATCH --ntasks=16\nexport OMP_NUM_THREADS=16\n./simulate",
    instead="#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=16\nexport OMP_NUM_THREADS=16\n./simulate",
)
def slots_on_several_hosts(case: Case) -> Iterator[Hit]:
    """Several tasks or slots for one process, and no number of nodes: a note where it does not name that number."""
    script, request = case.script, case.script.request
    if script.launches or script.is_filled_in or script.foreign or script.inner or request.exclusive:
        return
    if re.search(r"\b(?:mpi\w*|srun|ssh|pbsdsh|blaunch|jsrun|aprun|prun|parallel|charmrun|(?i:orca)|abyss-pe)\b"
                 r"|hostfile|HOSTS\b|NODELIST",
                 script.code):  # fmt: skip
        return
    if script.scheduler == "lsf":
        slots, where = number((request.values.get("n") or "").split(",")[0]), request.line("n")
        apart = not _ONE_HOST.search(request.values.get("R") or "") and "nnodes" not in request.values
        remedy = '#BSUB -R "span[hosts=1]"'
    elif script.scheduler == "slurm":
        slots, where = request.tasks, request.line("ntasks")
        apart = not request.values.keys() & {"ntasks-per-node", "array", "ntasks-per-gpu", "nodelist"}
        remedy = f"#SBATCH --ntasks=1 --cpus-per-task={slots}"
    else:
        return
    if not slots or slots < 2 or not apart:
        return
    names = "SLURM_NTASKS|SLURM_NPROCS|LSB_DJOB_NUMPROC|LSB_MAX_NUM_PROCESSORS"
    uses = re.search(
        rf"(?:threads|THREADS|workers|cpus?|cores|-[jptnT])[= ]*[\"']?(?:{slots}\b|\$\{{?(?:{names}))", script.code
    )
    text = f"{slots} cores can be on several hosts, and this script starts one process"
    if not request.nodes:
        yield Hit(where, text, remedy, None if uses else "note")
    elif request.nodes == 1 and script.scheduler == "slurm" and not uses:
        yield Hit(where, f"nothing here starts {slots} tasks: this script is one process", remedy, "note")
