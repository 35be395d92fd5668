"""The option tables of schedulers and launchers. Sources as in `options`."""

from __future__ import annotations

from stackyard.lint.options import Table, names

_SLURM_VALUED = names(  # slurm/src/common/slurm_opt.c: what srun and sbatch share, and sbatch's own
    "account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters comment "
    "constraint container container-id core-spec cores-per-socket cpu-freq cpus-per-gpu "
    "cpus-per-task deadline delay-boot dependency distribution error exclude export-file extra "
    "extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres "
    "gres-flags hint input job-name licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu "
    "mem-per-gpu mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu "
    "ntasks-per-node ntasks-per-socket open-mode output partition power prefer priority profile qos "
    "reservation segment signal sockets-per-node switches thread-spec threads-per-core time time-min "
    "tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap export kill-on-invalid-dep "
    "ntasks-per-tres resources runtime",
    "A:account b:begin B:extra-node-info c:cpus-per-task C:constraint d:dependency D:chdir e:error "
    "F:nodefile G:gpus i:input J:job-name L:licenses m:distribution M:clusters n:ntasks N:nodes "
    "o:output p:partition q:qos S:core-spec t:time w:nodelist x:exclude",
)
_SLURM_VALUED |= {
    "tasks-per-node": "ntasks-per-node",
    "workdir": "chdir",
    "mem_bind": "mem-bind",
    "a": "array",
}
_SLURM_FLAGS = names(
    "contiguous help hold ignore-pbs no-kill no-requeue overcommit oversubscribe parsable quiet "
    "reboot spread-job test-only usage use-min-nodes verbose version wait share stepmgr "
    "consolidate-segments spread-segments external",
    "H:hold k:no-kill O:overcommit Q:quiet s:oversubscribe v:verbose W:wait h:help V:version",
)
_SLURM_OPTIONAL = names("exclusive get-user-env nice propagate no-kill oom-kill-step requeue resv-ports")

SBATCH = Table(_SLURM_VALUED, _SLURM_FLAGS, _SLURM_OPTIONAL)

PLUGIN_OPTIONS = frozenset(
    [
        "image",
        "volume",
        "module",
        "clearenv",
        "entrypoint",
        "ccm",
        "uenv",
        "view",
        "environment",
        "container-image",
        "container-mounts",
        "container-name",
        "container-workdir",
        "container-mount-home",
        "no-container-mount-home",
        "container-writable",
        "container-remap-root",
        "container-entrypoint",
        "container-env",
        "container-save",
        "container-readonly",
        "x11",
        "bb-options",
        "gpumpi",
        "hint",
        "ear",
        "ear-policy",
        "ear-cpufreq",
        "ear-tag",
        "scratch",
        "perf",
        "vtune",
        "licenses",
        "no-shell",
        "lustre",
        "cuda-mps",
        "quotatype",
        "energy",
        "x11-batch",
    ]
)
"""Options that plugins of Shifter, Pyxis, uenv, EAR, X11 and quota plugins add; every site may have more."""

_SRUN_FLAGS = names(
    "contiguous help hold no-kill overcommit oversubscribe quiet reboot spread-job test-only "
    "use-min-nodes verbose version disable-status exact external-launcher label multi-prog "
    "no-allocate overlap preserve-env pty quit-on-interrupt share unbuffered clearenv "
    "container-mount-home no-container-mount-home container-writable container-remap-root "
    "container-readonly async interactive wait-for-children whole debugger-test",
    "H:hold k:no-kill O:overcommit Q:quiet s:oversubscribe v:verbose l:label u:unbuffered "
    "E:preserve-env X:disable-status Z:no-allocate h:help V:version",
)
_SRUN_VALUED = {
    **{key: value for key, value in _SLURM_VALUED.items() if value not in ("array", "wrap")},
    **names(
        "bcast-exclude epilog het-group mpi prolog relative slurmd-debug task-epilog task-prolog threads "
        "wait cpu-bind image volume module env container-image container-mounts container-name "
        "container-workdir container-save container-env uenv view environment ear ear-policy ear-cpufreq "
        "pack-group accel-bind ignore-signals jobid msg-timeout treewidth",
        "r:relative T:threads W:wait",
    ),
    "cpu_bind": "cpu-bind",
}
SRUN = Table(
    _SRUN_VALUED,
    _SRUN_FLAGS,
    names(
        "exclusive kill-on-bad-exit immediate bcast compress send-libs nice propagate resv-ports x11",
        "K:kill-on-bad-exit I:immediate",
    ),
)

JSRUN = Table(
    names(
        "nrs rs_per_host tasks_per_rs cpu_per_rs gpu_per_rs np bind launch_distribution latency_priority "
        "smpiargs env erf_input erf_output immediate chdir stdio_mode stdio_stdout stdio_stderr "
        "stdio_input stdin_rank exit_on_error memory_per_rs hosts exclude_hosts launch_node_task pre_post_exec "
        "save_resources use_resources use_reservation use_spindle appfile env_no_propagate allocate_only progress "
        "erf_output_pidx print_placement",
        "n:nrs r:rs_per_host a:tasks_per_rs c:cpu_per_rs g:gpu_per_rs p:np b:bind d:launch_distribution "
        "l:latency_priority M:smpiargs E:env U:erf_input h:chdir e:stdio_mode o:stdio_stdout "
        "k:stdio_stderr t:stdio_input I:stdin_rank X:exit_on_error m:memory_per_rs H:launch_node_task "
        "x:exclude_hosts K:rs_per_socket L:use_spindle S:save_resources J:use_reservation f:appfile F:env_eval "
        "D:env_no_propagate P:pre_post_exec A:allocate_only Z:progress",
    )
    | {"rs_per_socket": "rs_per_socket", "env_eval": "env_eval"},
    names("immediate help version verbose", "i:immediate V:version v:verbose"),
)

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

DDLRUN = Table(  # IBM WML CE 1.6.2, "Using the ddlrun tool"; what it does not know itself is mpirun's, through --mpiarg
    {
        **MPIRUN.valued,
        **names("m:mode mode ddlarg ddloption mpiarg"),
        **names("racks aisles", "nodes:rack-nodes"),  # of each aisle; in all; of each rack
        "accelerators": "ppn",  # GPUs of a node, each with a rank
    },
    {**MPIRUN.flags, **names("no_ddloptions tcp")},
    style="single",
    pairs=MPIRUN.pairs,
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
        "deepspeed_hostfile fsdp_sharding_strategy same_network role tee log_dir fsdp_auto_wrap_policy "
        "offload_optimizer_device offload_param_device gradient_accumulation_steps gradient_clipping "
        "fsdp_transformer_layer_cls_to_wrap fsdp_state_dict_type fsdp_backward_prefetch "
        "fsdp_offload_params fsdp_use_orig_params fsdp_sync_module_states fsdp_cpu_ram_efficient_loading "
        "zero3_save_16bit_model zero3_init_flag use_megatron_lm fsdp_version"
    ),
    names(
        "multi_gpu cpu tpu use_deepspeed use_fsdp module no_python quiet debug use_xpu enable_cpu_affinity", "m:module"
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

FLUX = Table(
    names(
        "ntasks nodes cores-per-task gpus-per-task time-limit setopt job-name queue bank output error "
        "input env requires env-file env-remove dependency cwd urgency begin-time signal tasks-per-node "
        "tasks-per-core cores gpus-per-node nslots cores-per-slot gpus-per-slot label attr add-file "
        "setattr conf broker-opts cc bcc log log-stderr taskmap rlimit flags wait-event define sep",
        "n:ntasks N:nodes c:cores-per-task g:gpus-per-task t:time-limit o:setopt q:queue B:bank S:setattr",
    ),
    names(
        "exclusive label-io unbuffered verbose dry-run wait watch debug debug-emulate quiet progress jps shuffle wrap "
        "list-plugins",
        "x:exclusive l:label-io u:unbuffered v:verbose",
    ),
)

APRUN = Table(
    names("", "n:np N:ppn d:depth S:pes-per-numa L:hosts e:env j:cpus-per-core r:core-spec") | {"cc": "cc", "mem": "m"},
    names("", "b:b B:B q:q F:F"),
    style="single",
)
IBRUN = Table(names("", "n:np np:np o:offset npernode:ppn"), {}, style="single")

CONTAINER = Table(
    names(
        "bind pwd cwd env env-file home workdir scratch overlay no-mount security mount network "
        "network-args dns hostname app add-caps drop-caps apply-cgroups fusemount pem-path cpus memory "
        "data blkio-weight",
        "B:bind H:home W:workdir S:scratch o:overlay",
    ),
    names(
        "nv rocm nvccli cleanenv contain containall no-home writable writable-tmpfs userns pid ipc net "
        "fakeroot uts no-privs no-init compat no-umask no-eval disable-cache unsquash vm keep-privs "
        "allow-setuid bind-paths",
        "e:cleanenv c:contain C:containall w:writable u:userns p:pid i:ipc n:net f:fakeroot",
    ),
)

SHIFTER = Table(
    names(
        "image volume env env-file module workdir entrypoint-args modules", "i:image V:volume e:env m:module w:workdir"
    ),
    names("clearenv help verbose entrypoint", "E:clearenv h:help v:verbose"),
)

BSUB = Table(  # IBM Spectrum LSF 10.1, bsub: "Options"; of those with CSM, its guide
    names(
        "nnodes csm alloc_flags ln_slots ln_mem cn_cu cn_mem core_isolation jsm smt stage step_cgroup "
        "a app b C c clusters cwd D data datagrp E Ep e env eo eptl ext F f freq G g gpu hostfile i is J Jd jobaff "
        "jsdl jsdl_strict json jsm k L Lp M m mig n network notify o oo outdir P p pack ptl Q q R rnc S s sla sp "
        "stderr T t U u v W We w wa wt yaml block_jsrun g_dep",
    )
    | {"extsched": "ext"},
    names("ar B datachk H hl I Ip IS ISp ISs Is IX K N Ne r rn ti tty ul V XF x Zs h help"),
    style="single",
)

QSUB = Table(  # OpenPBS, qsub(1B); Torque's qsub(1) adds b, d, D, F, i, K, L, n, t, T, w, x, E
    names(
        "",
        "A:A N:N q:q l:l o:o e:e j:j m:m M:M J:J W:W r:r a:a S:S v:v p:p k:k P:P C:C u:u c:c R:R t:t d:d "
        "w:w L:L D:D F:F T:T b:b K:K i:i",
    ),
    names("", "V:V h:h I:I X:X z:z f:f G:G E:E n:n x:x"),
)

FLUX_BATCH = Table(  # flux-core's flux-batch(1): sizes are in slots
    names(
        "nslots cores-per-slot gpus-per-slot nodes bank queue time-limit urgency job-name setopt setattr add-file "
        "dependency requires begin-time env env-remove env-file rlimit input output error cwd flags signal conf "
        "broker-opts add-brokers",
        "n:nslots c:cores-per-slot g:gpus-per-slot N:nodes B:bank q:queue t:time-limit o:setopt S:setattr",
    ),
    names(
        "exclusive unbuffered label-io dry-run quiet list-plugins wrap debug debug-emulate",
        "x:exclusive u:unbuffered l:label-io",
    ),
    names("dump help"),
)

HEADS = {"slurm": SBATCH, "lsf": BSUB, "pbs": QSUB, "flux": FLUX_BATCH}
