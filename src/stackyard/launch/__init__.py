"""From an intent to ranks on nodes: laid out, rendered for every scheduler and launcher, started, watched, recorded.

    Intent + Site -> Layout (who runs where) -> Plan (exact argv, script, environment, reasons) -> Run

Rooms inside: `launchers` (srun, jsrun, mpirun ...: a `Layout` as one command line), `batch` (sbatch, bsub ...: headers,
submit, follow, cancel), `backends` (torchrun, Horovod, Ray ...: what the program needs), `node` (what runs beside the
ranks: the shim and the agent), `gate` (checks before the program), `lint` (other people's batch scripts).
"""
