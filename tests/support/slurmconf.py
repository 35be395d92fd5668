"""How a test cluster is configured: which addresses and ports follow from its number, and the files of Slurm."""

from __future__ import annotations

import socket
from pathlib import Path
from secrets import randbelow

CPUS, GPUS = 32, 4


def address(number: int, node: int | None = None) -> str:
    """The address of a node (1, 2 ...), or of this machine as the nodes see it."""
    return f"10.197.{number}.{1 if node is None else 10 + node}"


def port(number: int) -> int:
    """Where the controller listens; the nodes' daemons use the next one."""
    return 17000 + 2 * number


def configuration(here: Path, number: int, nodes: int) -> dict[str, str]:
    """The files of a cluster's configuration, by name.

    Args:
        here: the directory they are for.
        number: the cluster's; addresses and ports follow from it.
        nodes: how many.
    """
    host = socket.gethostname().partition(".")[0]
    addresses = {host: address(number)} | {f"n{i}": address(number, i) for i in range(1, nodes + 1)}
    half = max(1, nodes // 2)
    leaves = [f"SwitchName=leaf1 Nodes=n[1-{half}]"]
    leaves += (
        [f"SwitchName=leaf2 Nodes=n[{half + 1}-{nodes}]", "SwitchName=top Switches=leaf[1-2]"] if nodes > 1 else []
    )
    return {
        "slurm.conf": f"""
ClusterName=test{number}
# MPICH names its shared memory by the number of the job: what ranks left that were killed must not be another's
FirstJobId={1000 + randbelow(50_000_000)}
SlurmctldHost={host}({address(number)})
SlurmctldPort={port(number)}
SlurmdPort={port(number) + 1}
SlurmUser=root
AuthType=auth/munge
# a requeued job waits for cred_expire seconds before it starts again
AuthInfo=socket={here}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool/%n
SlurmctldPidFile={here}/run/slurmctld.pid
SlurmdPidFile={here}/run/slurmd.%n.pid
SlurmctldLogFile={here}/log/slurmctld.log
SlurmdLogFile={here}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
SwitchType=switch/none
TopologyPlugin=topology/tree
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
PriorityType=priority/basic
ReturnToService=2
# long: a node that is gone is noticed late, as on most clusters
SlurmdTimeout=300
KillWait=3
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
MailProg=/bin/true
JobCompType=jobcomp/filetxt
JobCompLoc={here}/log/jobcomp.txt
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n[1-{nodes}] NodeHostname=n[1-{nodes}] NodeAddr=10.197.{number}.[11-{10 + nodes}] CPUs={CPUS} RealMemory=8000 Gres=gpu:h100:{GPUS} State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:16 PriorityTier=1 GraceTime=5
PartitionName=short Nodes=ALL MaxTime=1 OverSubscribe=FORCE:16 PriorityTier=1 GraceTime=5
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10
""".lstrip(),  # noqa: E501
        "gres.conf": f"AutoDetect=off\nNodeName=n[1-{nodes}] Name=gpu Type=h100 File={here}/dev/gpu[0-{GPUS - 1}]\n",
        "mpi.conf": f"PMIxCliTmpDirBase={here}/spmix\n",
        "topology.conf": "\n".join([*leaves, ""]),
        "hosts": "127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in addresses.items()),
    }
