"""Grid Engine: `scheduler: {kind: sge}` in site.yaml.

The parallel environment of this site, ``whole_nodes``, gives every host as many slots as it has cores (sge_pe(5)).
Sources: submit(1), qstat(1), accounting(5) of Grid Engine 8.1.
"""

from stackyard.launch.plan.schedulers.directives import DirectiveScheduler

STACKYARD_PROTOCOL = 1
_FLAGS = "clear cwd h hard help noshell nostdin notify soft terse V verbose verify"
_VALUED = (
    "@ a ac ar b binding c ckpt C dc display dl e hold_jid hold_jid_ad i j js jsv l m M masterq now ot p pty r R S sc "
    "shell sync tc u v w wd"
)


class GridEngine(DirectiveScheduler):
    """qsub scripts with ``#$``."""

    name = "sge"
    prefix = "#$"
    submit_program = "qsub"
    fixed = {"-S /bin/bash": "runs the script, whatever shell the queue has", "-j y": "stderr goes to the same file"}
    options = {
        "job_name": "-N {value}",
        "account": "-A {value}",
        "queue": "-q {value}",
        "dependency": "-hold_jid {value}",
        "time": "-l h_rt={value}",
        "nodes": "-pe whole_nodes {node_slots}",
        "exclusive": "",  # whole nodes
        "gpus": "-l gpu={value}",
        "memory": "-l h_vmem={memory_mib_per_core}M",  # per slot
        "output": "-o {value}",
        "array": "-t {value}",
        "requeue": "-r y",
        "no_requeue": "-r n",
        "mail_events": "-m {value}",
        "mail": "-M {value}",
    }
    head_options = {
        **{f"-{name}": "" for name in _FLAGS.split()},
        **{f"-{name}": "value" for name in _VALUED.split()},
        "-N": "name",
        "-A": "account",
        "-P": "account",
        "-q": "queue",
        "-t": "array",
        "-o": "output",
        "-pe": "value tasks",
        "-l h_rt": "time",
    }
    head_needs = {"-hold_jid_ad": ("-t",)}
    time_pattern = r"((?P<hours>\d*):(?P<minutes>\d*):)?(?P<seconds>\d*)"
    letters = {"begin": "b", "end": "e", "fail": "a"}
    index_in_output = "$TASK_ID"
    job_id_pattern = r"[Yy]our job(?:-array)? (\d+)"
    task_pattern = "{job}.{index}"
    cancel_words, cancelled_words = ("qdel",), ("does not exist",)
    requeue_words = ("qmod", "-rj")
    state_words = ("qstat", "-u", "*")
    state_pattern = r"^ *{job} +\S+ +\S+ +\S+ +(?P<state>[a-zA-Z]+) "
    states = {"qw": "queued", "hqw": "queued", "t": "starting", "r": "running", "Rr": "running", "Eqw": "failed"}
    end_words, end_pattern = ("qacct", "-j", "{job}"), r"^exit_status +(?P<code>\d+)"
    ends = {r"^failed +37 .*": "timeout", r"^failed +100 .*": "cancelled"}
    job_variable, hosts_variable = "JOB_ID", "PE_HOSTFILE"
    index_variable, no_index = "SGE_TASK_ID", "undefined"
    carries_environment = False
    inherited = r"(?!SGE_|PE_|JOB_|PMI|OMPI_COMM_)(?!(NSLOTS|NHOSTS|NQUEUES|QUEUE|RESTARTED)$).*|SGE_(ROOT|CELL)"


sge = GridEngine()
