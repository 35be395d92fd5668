"""The option tables of schedulers and launchers. Sources as in `options`."""

from __future__ import annotations

from stackyard.launch.request.options import Table, names
from stackyard.launch.request.starters import MPIRUN
from stackyard.lint.systems import FLAGS, VALUED, WORDS

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
        *WORDS,
        "clearenv",
        "entrypoint",
        "ccm",
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
    "async interactive wait-for-children whole debugger-test",
    "H:hold k:no-kill O:overcommit Q:quiet s:oversubscribe v:verbose l:label u:unbuffered "
    "E:preserve-env X:disable-status Z:no-allocate h:help V:version",
)
_SRUN_VALUED = {
    **{key: value for key, value in _SLURM_VALUED.items() if value not in ("array", "wrap")},
    **names(
        "bcast-exclude epilog het-group mpi prolog relative slurmd-debug task-epilog task-prolog threads "
        "wait cpu-bind env ear ear-policy ear-cpufreq pack-group accel-bind ignore-signals jobid msg-timeout treewidth",
        "r:relative T:threads W:wait",
    ),
    **VALUED,
    "cpu_bind": "cpu-bind",
}
SRUN = Table(
    _SRUN_VALUED,
    {**_SRUN_FLAGS, **FLAGS},
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
