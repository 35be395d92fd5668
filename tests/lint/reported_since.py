"""Further scripts made after public reports, in the form of `reported`; `SLIPS` are those of the rule shell-slip.

A second script for a rule has a number behind its name.
"""

from __future__ import annotations

_HEAD = "#!/bin/bash\n#SBATCH --time=01:00:00\n"
_ONE = _HEAD + "#SBATCH --ntasks=1\n"
_NODES = _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
_PBS = "#!/bin/bash\n#PBS -l walltime=01:00:00\n"

SINCE: dict[str, tuple[str, str, str, str]] = {
    "shell-slip": (_ONE + "files=$(ls)\nlist=(\"$files\")\n./work ${list[0]}\n", '("$files")', "($files)", ""),
    "name-never-set": (_ONE + "API_KEY=abc\n./login $api_key\n", "$api_key", "$API_KEY", ""),
    "module-hides-environment": (
        _ONE + "source conda.sh\nconda activate train\nmodule load Python/3.10\n./work\n",
        "conda activate train\nmodule load Python/3.10", "module load Python/3.10\nconda activate train", "",
    ),
    "launcher-variables-removed": (
        _HEAD + "#SBATCH --ntasks=4\nsrun apptainer exec --cleanenv i.sif ./a.out\n", "--cleanenv ", "", "",
    ),
    "shell-not-named": (
        "#!/bin/bash\n#$ -cwd\n#$ -l h_rt=1:00:00\nfor i in 1 2; do\n  ./work $i\ndone\n",
        "-cwd", "-cwd -S /bin/bash", "",
    ),
    "other-shells-syntax": (
        _ONE + "setenv OMP_NUM_THREADS 1\n./work\n", "setenv OMP_NUM_THREADS 1", "export OMP_NUM_THREADS=1", "",
    ),
    "option-value launch": (_HEAD + "#SBATCH --ntasks=1\nsrun -c 1python work.py\n", "-c 1python", "-c 1 python", ""),
    "option-value glued": (
        _HEAD + "#SBATCH --ntasks=4\nsrun --nodes 1--ntasks 4 ./work\n", "1--ntasks", "1 --ntasks", "",
    ),
    "option-value filesystems": (
        "#!/bin/bash\n#PBS -l walltime=01:00:00,filesystems=home,eagle\ncd $PBS_O_WORKDIR\n./work\n",
        "home,eagle", "home:eagle", "",
    ),
    "variable-misspelt of another": (
        _PBS + "#PBS -l select=1:ncpus=4:mpiprocs=4\ncd $PBS_O_WORKDIR\nmpirun -np 4 --hostfile $PBS_HOSTFILE ./work\n",
        "PBS_HOSTFILE", "PBS_NODEFILE", "",
    ),
    "port-of-kernel drawn": (
        _HEAD + "#SBATCH --ntasks=2\nexport MASTER_PORT=$RANDOM\nsrun ./a.out\n",
        "$RANDOM", "$((20000 + SLURM_JOB_ID % 10000))", "",
    ),
    "digits-as-octal": (
        _HEAD + "#SBATCH --ntasks=2\nMASTER_PORT=$((10000 + $(echo -n $SLURM_JOBID | tail -c 4))) srun ./a.out\n",
        "$(echo", "10#$(echo", "",
    ),
    "digits-as-octal of a variable": (
        _HEAD + "#SBATCH --ntasks=2\nexport MASTER_PORT=$((10000 + ${SLURM_JOB_ID: -4}))\nsrun ./a.out\n",
        "${SLURM", "10#${SLURM", "",
    ),
    "node-loop-on-first-node": (
        _NODES + "rank=0\nfor node in $(scontrol show hostnames); do\n"
        "  torchrun --nnodes 2 --node_rank $rank --rdzv_endpoint $(scontrol show hostnames | head -n 1):0 p.py &\n"
        "  rank=$((rank + 1))\ndone\nwait\n",
        "  torchrun", "  srun -N 1 -n 1 -w $node torchrun", "",
    ),
    "worker-on-first-node": (
        _PBS + "#PBS -l select=2:ncpus=64\ncd $PBS_O_WORKDIR\nhq worker start\n",
        "hq worker", "pbsdsh -- hq worker", "",
    ),
    "copies-of-one-program": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=4\nsrun python p.py\n", "ntasks=4", "ntasks=1",
        "from multiprocessing import Pool\nPool(4).map(print, [])\n",
    ),
    "copies-of-one-program 2": (
        _HEAD + "#SBATCH --ntasks=8\nsrun samtools sort -@ 8 a.bam\n",
        "samtools sort -@ 8 a.bam", "./sort_by_mpi a.bam", "",
    ),
    "loopback-between-nodes 2": (
        _NODES + "A=$(hostname -f || echo localhost)\nsrun ./a.out $A\n", " || echo localhost", "", "",
    ),
    "heap-over-memory 2": (
        _ONE + "#SBATCH -c 8 --mem=20G\nSTAR --runThreadN 8 --limitGenomeGenerateRAM 152003700778\n",
        "--mem=20G", "--mem=200G", "",
    ),
    "rank-bound-to-core 2": (
        _HEAD + "#SBATCH -N 1 -n 32\nmpirun -np 16 ./a &\nmpirun -np 16 ./b &\nwait\n",
        "-np 16 ./b", "-np 16 --bind-to none ./b", "",
    ),
    "slots-on-several-hosts 2": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=8\n./hello\n", "ntasks=8", "ntasks=1", "",
    ),
    "directive-variable 3": (
        "#!/bin/bash\n#$ -S /bin/bash\n#$ -cwd\n#$ -l h_rt=1:00:00\n#$ -o $OUT/log\n./work\n",
        "$OUT/log", "$HOME/log", "",
    ),
    "not-exported": (
        _ONE + "#SBATCH -c 8\nOMP_NUM_THREADS=8\nsrun -c 8 ./a.out\n", "OMP_NUM", "export OMP_NUM", "",
    ),
    "name-never-set 2": (
        _ONE + "export PYTHONPATH=/opt/lib:$PATHONPATH\n./work\n", "$PATHONPATH", "$PYTHONPATH", "",
    ),
    "name-never-set 3": (
        _ONE + "TRAIN_ARGS='--lr 1'\nexport CMD=\"./work $ARGS\"\n$CMD\n", "$ARGS", "$TRAIN_ARGS", "",
    ),
    "horovodrun-hosts": (
        _HEAD + "#SBATCH --ntasks=2\n#SBATCH --gres=gpu:2\nhorovodrun -np 2 -H localhost ./train\n",
        "localhost", "localhost:2", "",
    ),
    "pbs-words 3": (_PBS + "#PBS -n name\ncd $PBS_O_WORKDIR\n./work\n", "-n name", "-N name", ""),
    "time-format": ("#!/bin/bash\n#SBATCH -t 00:00:00\n#SBATCH --ntasks=1\n./work\n", "00:00:00", "00:10:00", ""),
    "srun-without-program 2": (_ONE + "srun /opt/qe/bin -input scf.in\n", "/opt/qe/bin", "/opt/qe/bin/pw.x", ""),
    "options-behind-script 3": (
        "#!/bin/bash\nsbatch --time=10 --export=ALL,A=1 --bin_dir=/y job.sh\n", " --bin_dir", ",bin_dir", "",
    ),
    "bash-in-sh 3": (_ONE + "sh p.py a b\n", "sh p.py", "bash p.py", "#!/bin/bash\nlist=(1 2)\n"),
    "ssh-without-environment": (
        _NODES + "module load python\nssh n1 python w.py &\nsrun ./a.out\nwait\n",
        "ssh n1 python", "srun -w n1 python", "",
    ),
    "rank-in-batch-body 3": (
        _HEAD + "#SBATCH --ntasks=4\nsrun ./work --rank $SLURM_PROCID\n", "./work --rank $SLURM_PROCID",
        "bash -c './work --rank $SLURM_PROCID'", "",
    ),
    "variable-not-set 3": (_PBS + "cd $PBS_O_WORKDIR\n./work $PBS_ARRAY_INDEX\n", " $PBS_ARRAY_INDEX", "", ""),
    "variable-not-set 4": (_ONE + "#SBATCH -o log_%a.out\n./work\n", "log_%a", "log_%j", ""),
    "mpi-program-alone 2": (
        _HEAD + "#SBATCH --ntasks=1\n#SBATCH -c 16\n/opt/orca/orca mol.inp\n",
        "--ntasks=1\n#SBATCH -c", "-N 1\n#SBATCH -n", "",
    ),
    "threads-over-chunk 2": (
        "#!/bin/bash\n#PBS -l select=2:ncpus=64\n#PBS -l walltime=01:00:00\ncd $PBS_O_WORKDIR\n"
        "mpiexec -n 64 --ppn 32 --depth=8 ./hello\n", "--depth=8", "--depth=2", "",
    ),
    "time-format 2": ("#!/bin/bash\n#SBATCH -t 24\n#SBATCH --ntasks=1\n./work\n", "-t 24", "-t 24:00:00", ""),
    "bash-in-sh 4": (
        "#!/bin/sh\n#SBATCH --time=10\n#SBATCH --ntasks=1\n./work &> log\n", "bin/sh", "bin/bash", "",
    ),
    "option-value 4": (_ONE + "#SBATCH --gres=gpus:1\n./work\n", "gpus:1", "gpu:1", ""),
    "path-replaced 2": (
        _ONE + "module load cuda\nexport LD_LIBRARY_PATH=/opt/lib\n./a.out\n",
        "/opt/lib", "/opt/lib:$LD_LIBRARY_PATH", "",
    ),
    "more-tasks-than-job 2": (
        "#!/bin/bash\n# flux: -N 2\n# flux: -t 10m\nflux run -N 4 -n 4 ./a.out\n", "run -N 4 -n 4", "run -N 2 -n 4", "",
    ),
    "option-value 3": (
        "#!/bin/bash\n#BSUB -W 1:00\n#BSUB -o o.%J\n#BSUB -g 4\n./work\n", "-g 4", '-gpu "num=4"', "",
    ),
    "variable-misspelt": (
        _HEAD + "#SBATCH --ntasks=2\nsrun ./work --out o-$SLURM_JOBS_ID\n", "SLURM_JOBS_ID", "SLURM_JOB_ID", "",
    ),
    "variable-not-set 2": (
        _NODES + "#SBATCH --gres=gpu:4\nsrun bash -c './work --gpus $SLURM_GPUS_PER_TASK'\n",
        "SLURM_GPUS_PER_TASK", "SLURM_GPUS_ON_NODE", "",
    ),
    "hosts-by-hand 2": (
        _HEAD + "#SBATCH --ntasks=2\nmpirun -hostfile $SLURM_JOB_NODELIST ./a.out\n",
        "-hostfile $SLURM_JOB_NODELIST ", "", "",
    ),
    "expanded-at-submission 2": (
        "#!/bin/bash\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --time=10\nOUT=/data\nsrun ./a.out $OUT\nEOF\n",
        "<<EOF", "<<'EOF'", "",
    ),
    "options-behind-script 2": (
        "#!/bin/bash\nsbatch --time=1 --wrap=./a b\n", "--wrap=./a b", "--wrap='./a b'", "",
    ),
    "bash-in-sh 2": (
        "#!/bin/sh\n#SBATCH --time=10\n#SBATCH --ntasks=1\nmodule load gcc\n./work\n", "bin/sh", "bin/bash", "",
    ),
    "pbs-words 2": (
        "#!/bin/bash\n#PBS -l walltime= 01:00:00\ncd $PBS_O_WORKDIR\n./work\n", "walltime= ", "walltime=", "",
    ),
    "mpirun-in-container 2": (
        _HEAD + "#SBATCH --ntasks=4\napptainer exec i.sif srun ./a.out\n",
        "apptainer exec i.sif srun", "srun apptainer exec i.sif", "",
    ),
    "unset-before-activate 2": (
        _ONE + "set -u\nsource /etc/profile\n./work\n",
        "set -u\nsource /etc/profile", "source /etc/profile\nset -u", "",
    ),
    "rank-in-batch-body 2": (
        _HEAD + "#SBATCH --ntasks=4\nexport CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\nsrun ./a.out\n",
        "export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\nsrun",
        "srun bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID exec $0'", "",
    ),
    "one-hyphen": (_ONE + "#SBATCH -partition=gpu\nsrun ./a.out\n", "-partition", "--partition", ""),
    "pbs-resource": (
        "#!/bin/bash\n#PBS -l walltime=01:00:00\n#PBS -l nodes=1:ppn=4:mem=10gb\ncd $PBS_O_WORKDIR\n./work\n",
        ":mem=10gb", ",mem=10gb", "",
    ),
    "export-none": (
        _HEAD + "#SBATCH --ntasks=1\n#SBATCH --export=NIL\nsrun --export=ALL ./a.out\n", "=NIL", "=NONE", "",
    ),
    "lightning-devices": (
        _NODES + "#SBATCH --gres=gpu:4\n#SBATCH -c 8\n"
        "srun -c 8 python p.py fit --trainer.devices=4 --trainer.num_nodes=2\n",
        "node=1", "node=4", "",
    ),
    "conda-activate-hook": (
        _ONE + "conda init bash\nconda activate train\n./work\n",
        "conda init bash", 'eval "$(conda shell.bash hook)"', "",
    ),
    "directive-variable 4": (_ONE + "#SBATCH -e logs/\nsrun ./a.out\n", "logs/", "logs-%j", ""),
    "blank-behind-backslash": (
        _ONE + "srun ./work \\ # the first\n  list\n", " \\ # the first", " \\", "",
    ),
    "ranks-over-gpus": (
        _ONE + "#SBATCH --gres=gpu:2\n#SBATCH -c 8\naccelerate launch --multi_gpu --num_processes 8 t.py\n",
        "--num_processes 8", "--num_processes 2", "",
    ),
    "directive-variable 2": (_ONE + "#SBATCH --output=~/o.log\nsrun ./a.out\n", "~/o.log", "/home/me/o.log", ""),
    "mkdir-too-late": (_ONE + "#SBATCH --output=run_%j/o.log\nsrun ./a.out\n", "run_%j/o.log", "run_%j.log", ""),
    "option-value 2": (_ONE + "#SBATCH --open-mode=apend\nsrun ./a.out\n", "apend", "append", ""),
    "more-threads-than-cores 2": (
        _ONE + "#SBATCH -c 8\nmatlab -batch 'parpool(16); run_all'\n", "parpool(16)", "parpool(8)", "",
    ),
    "threads-on-one-core 2": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=8\n#SBATCH -c 4\nexport OMP_NUM_THREADS=4\n"
        "mpirun --map-by core ./a.out\n",
        "core", "slot:PE=4", "",
    ),
    "isolated-gpu-by-local-rank": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=2\n#SBATCH --gpus-per-task=1\n#SBATCH -c 8\n"
        "srun -c 8 python p.py\n",
        "gpus-per-task=1", "gpus-per-node=2", "import lightning as L\nL.Trainer(devices=2).fit(None)\n",
    ),
}  # fmt: skip

LINES_SINCE = {
    "expanded-at-submission 2": 6, "bash-in-sh 2": 4, "unset-before-activate 2": 5,
    "node-loop-on-first-node": 7, "copies-of-one-program": 5, "lightning-devices": 7,
    "conda-activate-hook": 5, "module-hides-environment": 6,
    "isolated-gpu-by-local-rank": 7, "copies-of-one-program 2": 4, "heap-over-memory 2": 5, "bash-in-sh 4": 4,
    "mpi-program-alone 2": 5,
}  # fmt: skip

SLIPS: dict[str, tuple[str, str]] = {
    "bracket": ("if [$n = 1 ]; then ./work; fi", "if [ $n = 1 ]; then ./work; fi"),
    "blanks around =": ("threads = 4", "threads=4"),
    "dollar before =": ("$threads=4", "threads=4"),
    "order": ("./work 2>&1 > log", "./work > log 2>&1"),
    "trap": ("trap 'rm -rf tmp; exit 0' EXIT", "trap 'rm -rf tmp' EXIT"),
    "quotes": ('./work --wrap="a "b: c" d"', "./work --wrap=\"a 'b: c' d\""),
    "missing dollar": ("index=SLURM_ARRAY_TASK_ID", "index=$SLURM_ARRAY_TASK_ID"),
    "submission": (
        "id=$(sbatch a.sh)\nsbatch --dependency=afterok:$id b.sh",
        "id=$(sbatch --parsable a.sh)\nsbatch --dependency=afterok:$id b.sh",
    ),
    "name in a path": ("cd /data/SLURM_SUBMIT_DIR/in && ./work", "cd /data/$SLURM_SUBMIT_DIR/in && ./work"),
    "exported array": ("export TMPDIR=(a b)\n./work", "DIRS=(a b)\n./work ${DIRS[0]}"),
    "quoted star": ('rsync -a "out/*" /data', 'rsync -a "out"/* /data'),
    "quotes for a command": ("./work --nodes='cat $SLURM_JOB_ID.hosts'", './work --nodes="$(cat $SLURM_JOB_ID.hosts)"'),
    "a shell of a step": ("srun --pty bash\n./work", "srun ./work"),
    "not sourced": ("venv/bin/activate\n./work", ". venv/bin/activate\n./work"),
    "terminal": ("docker run -it img ./work", "docker run img ./work"),
    "module in a pipe": ("module load gcc | tee log\n./work", "module load gcc\n./work"),
    "name as number": ("N=1\nmpirun -np N ./work", "N=1\nmpirun -np $N ./work"),
    "all names": (
        "export MASTER_ADDR=$(scontrol show hostnames)\n./work",
        "export MASTER_ADDR=$(scontrol show hostnames | head -n 1)\n./work",
    ),
    "detached": ("screen -dmS run ./work", "./work"),
    "dependency": ("sbatch --dependency=after_ok:123 b.sh", "sbatch --dependency=afterok:123 b.sh"),
    "behind exit": ("./work\nexit 0\n./more", "./work\n./more\nexit 0"),
    "a shell": ("csh\n./work", "csh -c ./work"),
    "no command": ("apptainer exec i.sif\n./work", "apptainer exec i.sif ./work"),
    "scheduler in the image": ("apptainer exec i.sif scontrol show job", "scontrol show job"),
    "tilde": ('cd "~/data"', 'cd "$HOME/data"'),
    "zero": ("set -e\nn=0\n((n++))\n./work $n", "set -e\nn=0\n((n++)) || true\n./work $n"),
    "parentheses": ("./work $(SLURM_JOB_ID)", "./work ${SLURM_JOB_ID}"),
    "braces": ("N=4\nfor i in {1..$N}; do ./work $i; done", "N=4\nfor i in $(seq $N); do ./work $i; done"),
    "literal": ("srun ./work --rank '$SLURM_PROCID'", "srun bash -c './work --rank $SLURM_PROCID'"),
    "image": (
        "srun --container-image=./i.sqsh pip install x; python /job/run.py",
        "srun --container-image=./i.sqsh bash -c 'pip install x; python /job/run.py'",
    ),
    "rm": ("cd $OUT\nrm -rf *", "cd $OUT || exit 1\nrm -rf *"),
    "empty value": ("if [ -n $X ]; then ./work; fi", 'if [ -n "$X" ]; then ./work; fi'),
    "builtin": ("srun module load gcc", "module load gcc"),
    "list": ("cat $SLURM_JOB_NODELIST > hosts", "scontrol show hostnames > hosts"),
    "open quote": ("srun bash -c '# don't stop\n./work'", "srun bash -c '# do not stop\n./work'"),
    "typography": ("./work --name “x y”", "./work --name 'x y'"),
}  # fmt: skip
"""By kind, a line with the slip, and the line that was meant."""
