"""Grid Engine: `scheduler: {kind: sge}` in site.yaml.

The parallel environment of this site, ``whole_nodes``, gives every host as many slots as it has cores (sge_pe(5)).
Sources: submit(1), qstat(1), accounting(5) of Grid Engine 8.1.
"""

from stackyard.launch.plan.schedulers.directives import DirectiveScheduler

STACKYARD_PROTOCOL = 1


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
