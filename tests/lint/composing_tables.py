"""Options and lines of composed scripts; beside each, what the head of the job file, its lines or a note has of it."""

SBATCH_OPTIONS = [
    ("-p fast", "fast"), ("--account=me", "me"), ("--qos=high", "high"), ("-C v100", "v100"),
    ("--array=0-3%2", "0-3%2"), ("--nodelist=n[1-9]", "n[1-9]"), ("-x n9", "n9"),
    ("--hint=nomultithread", "nomult"),
    ("-m block:cyclic", "block:cyclic"), ("-L scratch", "scratch"), ("--signal=B:USR1@60", "USR1@60"),
    ("--open-mode=append", "append"), ("-e err.%j", "err.%j"), ("-o out.%j", "out.%j"), ("--tmp=10G", "10G"),
    ("--dependency=afterok:12", "afterok:12"), ("--mail-type=END,TIME_LIMIT", "TIME_LIMIT"),
    ("-D /work/a", "/work/a"),
    ("--export=NONE", "NONE"), ("--switches=1", "switches"), ("--comment='a b'", "a b"), ("--requeue", "requeue"),
    ("--threads-per-core=1", "threads-per-core"), ("-s", "oversubscribe"), ("--nice=5", "nice"), ("-J run", "run"),
    ("--core-spec=2", "core-spec"), ("--gres-flags=enforce-binding", "enforce"), ("--constraint='a&b'", "a&b"),
]  # fmt: skip

SRUN_OPTIONS = [
    ("--cpu-bind=cores", "cpu-bind"), ("--mpi=pmix", "pmix"), ("--exact", "exact"), ("--export=ALL,A=7", "'A': '7'"),
    ("--overlap", "overlap"), ("--mem=4G", "mem 4G"), ("-w n1", "n1"), ("--gpu-bind=closest", "closest"),
    ("-o log.%t", "log.%t"), ("--hint=nomultithread", "nomultithread"), ("-m cyclic", "cyclic"), ("-r 1", "relative"),
    ("--chdir=/tmp", "/tmp"), ("--time=5", "time 5"), ("--threads-per-core=1", "threads-per-core"),
    ("-i in", "input in"),
    ("--multi-prog", "multi-prog"), ("--open-mode=append", "append"), ("-X", "disable-status"),
]  # fmt: skip

MPIRUN_OPTIONS = [
    ("--bind-to core", "bind-to"), ("-x A=7", "'A': '7'"), ("-x PATH", "x PATH"), ("--mca btl tcp", "mca"),
    ("--report-bindings", "report-bindings"), ("--oversubscribe", "oversubscribe"), ("-wdir /tmp", "/tmp"),
    ("--hostfile h", "hostfile h"), ("-H n1,n2", "n1,n2"), ("--prefix /opt/m", "/opt/m"),
    ("--tag-output", "tag-output"),
]  # fmt: skip

PBS_OPTIONS = [
    ("-q fast", "fast"), ("-A me", "me"), ("-N run", "run"), ("-j oe", ""), ("-j eo", "-j eo"), ("-m abe", ""),
    ("-l place=pack", "pack"), ("-l place=scatter:excl", ""), ("-W umask=22", "umask=22"), ("-J 0-4", "0-4"),
    ("-V", "V"),
    ("-o out", "out"), ("-e err", "err"), ("-r y", ""), ("-p 10", "10"), ("-l filesystems=home:eagle", "home:eagle"),
    ("-v A=7,B", "A=7,B"), ("-W depend=afterok:12", "afterok:12"), ("-k oe", "k oe"), ("-S /bin/bash", "/bin/bash"),
    ("-P proj", "proj"), ("-l pmem=2gb", "pmem"), ("-a 1200", "1200"), ("-l software=x", "software=x"),
]  # fmt: skip

LSF_OPTIONS = [
    ("-q fast", "fast"), ("-P me", "me"), ("-J run", "run"), ("-o out.%J", "out.%J"), ("-e err.%J", "err.%J"),
    ("-N", ""),
    ('-R "rusage[mem=4000]"', "rusage[mem=4000]"), ("-M 8000", "8000"), ("-x", ""), ("-alloc_flags gpumps", "gpumps"),
    ('-J "arr[1-4]%2"', "1-4"), ("-w 'done(12)'", "done(12)"), ("-u me@x.org", "me@x.org"), ("-cwd /work/a", "/work/a"),
    ('-R "select[v100]"', "v100"), ("-m n1", "n1"), ("-L /bin/bash", "/bin/bash"), ("-G grp", "grp"), ("-app x", "app"),
    ('-R "affinity[core(4)]"', "affinity"), ("-U resv", "resv"), ("-B", ""), ("-r", "-r"), ("-sla g", "sla"),
]  # fmt: skip

FLUX_OPTIONS = [
    ("-q fast", "fast"), ("-B me", "me"), ("--job-name=run", "run"), ("--output=o.{{id}}", "o.{{id}}"), ("-x", ""),
    ("--setattr=a=b", "a=b"), ("--requires=host:n1", "host:n1"), ("--error=e", "=e"),
    ("--dependency=afterok:1", "afterok:1"),
    ("--env=A=7", "A=7"), ("-o cpu-affinity=off", "cpu-affinity"), ("--urgency=20", "20"), ("--begin-time=+1h", "+1h"),
]  # fmt: skip

FLUX_RUN_OPTIONS = [
    ("-o mpi=spectrum", "mpi=spectrum"), ("--env=A=7", "'A': '7'"), ("-o gpu-affinity=off", "gpu-affinity"), ("-l", ""),
    ("--setopt=cpu-affinity=per-task", "per-task"), ("--output=log", "output log"), ("--requires=host:n1", "host:n1"),
    ("-x", "exclusive"), ("--cwd=/tmp", "/tmp"),
]  # fmt: skip

BEFORE = {
    "module load gcc/12": "module load gcc/12",
    "export A_B=1": "A_B=1",
    'export PATH="$HOME/bin:$PATH"': "$HOME/bin",
    "source env.sh": "source env.sh",
    "ulimit -s unlimited": "ulimit -s unlimited",
    "cp a.in /tmp/b.in": "cp a.in /tmp/b.in",
    "mkdir -p out": "mkdir -p out",
    "if [ -f x ]; then export C_D=2; fi": "C_D=2",
    "for f in a b; do touch $f; done": "touch $f",
    "[ -d out ] || mkdir out": "mkdir out",
    "cat > cfg <<EOF\nkey = 1\nEOF": "cat > cfg",
    "./prepare --all &": "./prepare",
    "(cd sub; make)": "make",
    "{ rm -f old; ./clean; }": "./clean",
    "cd /work/run": "/work/run",
    "set -e": "set -e",
    "E_F=3; export E_F": "E_F",
    "python make_input.py > in.txt": "make_input.py",
    "declare -x G_H=4": "G_H=4",
    "unset I_J": "unset I_J",
    "trap 'rm -f x' EXIT": "trap",
    "conda activate torch": "conda activate torch",
    "rsync -a a/ b/ | tee log": "rsync",
    "case $HOST in a*) export K_L=5 ;; esac": "K_L=5",
    "prep() { tar xf a.tar; }\nprep": "tar xf a.tar",
    "eval 'export M_N=6'": "M_N",
    "alias ll='ls -l'": "alias",
    "umask 022": "umask 022",
    "export O_P=$(cat key) Q_R=7": "Q_R=7",
    "while read -r l; do echo $l >> all; done < list": "list",
    "sleep 5": "",
    "echo $HOSTNAME": "",
}
"""Lines before the launch, and what the job file or a note has of each."""

AFTER = {
    "cp out.txt /archive": "/archive",
    "./post --all": "./post",
    "if [ $? -eq 0 ]; then rm tmp; fi": "rm tmp",
    "": "",
}

AROUND: list[tuple[str, str]] = [
    ("{}", ""), ("{}", ""), ("{}", ""), ("time {}", ""), ("timeout 1h {}", "timeout 1h"), ("exec {}", ""),
    ("A=7 {}", "'A': '7'"), ("env A=7 {}", "A=7"), ("{} > log", ">log"), ("{} 2>&1 | tee log", "2>&1"),
    ("{} < in", "<in"),
    ("{} &\nwait", "background"), ("true && {}", "depends"), ("{} || exit 1", "exit 1"),
    ("if true; then\n  {}\nfi", "condition"), ("for i in 1 2; do\n  {}\ndone", "loop"), ("({})", ""),
    ("run() {{\n  {}\n}}\nrun", ""), ("nice -n 5 {}", "nice -n 5"), ("{} &> log", "&>log"),
    ("until {}; do sleep 1; done", "loop"), ("strace -f {}", "strace -f"), ("{} ; echo done", ""),
]  # fmt: skip
"""The launch in its surroundings, and what a note has of these."""
