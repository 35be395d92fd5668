"""Programs that start ranks themselves, such as torchrun and mpirun: their names, their options and their program.

`launch` starts some of them once per node and refuses the others; `lint` reads them in scripts. Sources of the tables
as in `options`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.launch.request.options import Option, Reading, Table, mapped, names, read_options

MPIRUN = Table(
    {
        **dict.fromkeys(("n", "np", "c", "ntasks"), "np"),
        **dict.fromkeys(("N", "npernode", "ppn", "perhost"), "ppn"),
        **dict.fromkeys(("H", "host", "hosts"), "host"),
        **dict.fromkeys(("hostfile", "machinefile", "f", "default-hostfile"), "hostfile"),
        **dict.fromkeys(("mca", "gmca", "pmca", "prtemca"), "mca"),
        **dict.fromkeys(("genv", "env"), "env"),
        **names(
            "x map-by bind-to rank-by rankfile wdir wd prefix iface launcher bootstrap depth cpu-bind "
            "envlist genvlist path launcher-exec rmk mem-bind am app timeout tmpdir output-filename "
            "report-uri cpu-set cpu-list npersocket output personality fwd-mpirun-port ofi gpu-bind "
            "line-buffer-size cc",
            "d:depth rf:rankfile",
        ),
    },
    names(
        "oversubscribe allow-run-as-root report-bindings tag-output nooversubscribe bycore bynode byslot "
        "display-map display-allocation bind-to-core bind-to-none bind-to-socket q v quiet verbose "
        "genvall envall envnone genvnone l label line-buffer V version prepend-rank print-rank-map "
        "print-all-exitcodes noprefix disable-auto-shrink merge-stderr-to-stdout timestamp-output "
        "display-devel-map novm usehostfile gpu disable_gdr disable_gpu_hooks"
    ),
    style="single",
    pairs=frozenset(("mca", "gmca", "pmca", "prtemca", "genv", "env")),
)

TORCHRUN = Table(
    names(
        "nnodes nproc_per_node node_rank rdzv_id rdzv_backend rdzv_endpoint rdzv_conf master_addr "
        "master_port max_restarts monitor_interval start_method role log_dir redirects tee local_addr "
        "logs_specs local_ranks_filter event_log_handler numa_binding signals_to_handle shutdown_timeout",
        "r:redirects t:tee",
    )
    | {"nproc_per_machine": "nproc_per_node"},
    names(
        "standalone module no_python run_path use_env virtual_local_rank duplicate_stdout_filters", "m:module h:help"
    ),
    style="python",
)

DEEPSPEED = Table(
    names(
        "hostfile include exclude num_nodes num_gpus master_port master_addr launcher launcher_args "
        "autotuning enable_each_rank_log bind_core_list node_rank min_elastic_nodes max_elastic_nodes "
        "ssh_port venv_script",
        "H:hostfile i:include e:exclude",
    ),
    names(
        "module no_python no_local_rank force_multi save_pid elastic_training bind_cores_to_rank no_ssh no_ssh_check"
    ),
    style="python",
)

ACCELERATE = Table(
    names(
        "config_file num_processes num_machines machine_rank main_process_ip main_process_port "
        "mixed_precision gpu_ids dynamo_backend rdzv_backend rdzv_conf max_restarts monitor_interval "
        "num_cpu_threads_per_process deepspeed_config_file zero_stage deepspeed_multinode_launcher "
        "deepspeed_hostfile fsdp_sharding_strategy role tee log_dir fsdp_auto_wrap_policy "
        "offload_optimizer_device offload_param_device offload_optimizer_nvme_path offload_param_nvme_path "
        "deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_moe_layer_cls_names "
        "gradient_accumulation_steps gradient_clipping dynamo_mode vm env main_training_function mpirun_hostfile "
        "fsdp_transformer_layer_cls_to_wrap fsdp_state_dict_type fsdp_backward_prefetch "
        "fsdp_offload_params fsdp_use_orig_params fsdp_sync_module_states fsdp_cpu_ram_efficient_loading "
        "zero3_save_16bit_model zero3_init_flag fsdp_version "
        "fsdp_min_num_params fsdp_reshard_after_forward fsdp_forward_prefetch fsdp_activation_checkpointing "
        "fsdp_activation_checkpointing_offload"
    ),
    names(
        "multi_gpu cpu tpu use_deepspeed use_fsdp module no_python quiet debug use_xpu enable_cpu_affinity "
        "use_megatron_lm same_network use_parallelism_config downcast_bf16 dynamo_use_fullgraph dynamo_use_dynamic "
        "dynamo_use_regional_compilation tpu_cluster no_tpu_cluster tpu_use_sudo",
        "m:module",
    ),
    style="python",
)

HOROVODRUN = Table(
    {
        "np": "np",
        "num-proc": "np",
        "H": "hosts",
        "hosts": "hosts",
        "hostfile": "hostfile",
        "p": "ssh-port",
        **names(
            "ssh-port mpi-args network-interfaces network-interface start-timeout timeline-filename "
            "fusion-threshold-mb cycle-time-ms cache-capacity min-np max-np host-discovery-script "
            "slots-per-host config-file log-level output-filename tcp-flag binding-args reset-limit "
            "min-num-proc max-num-proc ssh-identity-file nics gloo-timeout-seconds autotune-log-file "
            "num-nccl-streams prefix-output-with-timestamp"
        ),
    },
    names("mpi gloo jsrun verbose disable-cache check-build autotune v help version tcp no-autotune"),
    style="single",
)

RAY = Table(  # ray symmetric-run --help: further options are those of ray start
    names("address min-nodes num-cpus num-gpus resources labels object-store-memory temp-dir include-dashboard"),
    names("disable-usage-stats"),
    style="single",
)

TABLES = {
    "torchrun": TORCHRUN, "accelerate": ACCELERATE, "deepspeed": DEEPSPEED, "horovodrun": HOROVODRUN, "mpirun": MPIRUN,
    "ray": RAY,
}  # fmt: skip
"""The options of each kind of starter."""
_MPIRUN = (
    "mpirun mpiexec mpiexec.hydra mpirun.actual mpirun_rsh orterun prterun mpiexec_mpt mpiexec.slurm mpirun.lsf "
    "mpirun.openmpi mpiexec.openmpi mpirun.mpich mpiexec.mpich"
)
PROGRAMS = {
    **{name: name for name in ("torchrun", "deepspeed", "horovodrun")}, **dict.fromkeys(_MPIRUN.split(), "mpirun"),
}  # fmt: skip
"""The kind of each program."""
MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate", "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner": "horovodrun",
}  # fmt: skip
"""The kind of each module for ``python -m``."""
_BEFORE = frozenset(("env", "nohup", "time", "timeout", "nice", "numactl", "taskset", "stdbuf", "exec", "command"))


@dataclass(frozen=True)
class Starter:
    """A starter of ranks with its options. `head`: the words up to its own options; `reading.rest`: its program."""

    kind: str
    head: tuple[str, ...]
    reading: Reading

    @property
    def name(self) -> str:
        """As it is called in messages."""
        return " ".join(self.head[-2:]) if self.kind in ("accelerate", "ray") else Path(self.head[-1]).name

    def count(self, name: str) -> int | None:
        """An option's value if it is a plain number."""
        value = self.reading.get(name) or ""
        return int(value) if value.isascii() and value.isdigit() else None

    def typed(self, option: Option) -> tuple[str, ...]:
        """The words of one of its options, as they may be typed."""
        table, dashes = TABLES[self.kind], "-" if len(option.written) == 1 or self.kind == "mpirun" else "--"
        if not option.value and option.name not in table.valued.values():
            return (f"{dashes}{option.written}",)
        if dashes == "-":
            return (f"-{option.written}", *option.value.split(" ", option.written in table.pairs))
        return (f"--{option.written}={option.value}",)


def find(words: Sequence[str]) -> Starter | None:
    """The starter that a command runs, also behind ``env A=b``, ``numactl -N 0`` and the like; None if it runs none."""
    words = tuple(words)
    before = bool(words) and Path(words[0]).name in _BEFORE
    for at, word in enumerate(words):
        name, after = Path(word).name, at + 1
        if name in PROGRAMS:
            kind = PROGRAMS[name]
        elif name == "accelerate" and words[after : after + 1] == ("launch",):
            kind, after = "accelerate", at + 2
        elif name == "ray" and words[after : after + 1] == ("symmetric-run",):
            kind, after = "ray", at + 2
        elif word == "-m" and (at == 0 or Path(words[at - 1]).name.startswith("python")) and words[after:]:
            kind, after = MODULES.get(words[after], ""), at + 2
        else:
            kind = ""
        if kind:
            reading = read_options(TABLES[kind], words[after:])
            return Starter(kind, tuple(words[:after]), mapped(reading) if kind == "mpirun" else reading)
        if word.endswith(".py") or not (before or name.startswith("python")):
            return None
    return None
