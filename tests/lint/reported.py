"""Small scripts made after public reports of jobs that went wrong: each with its fault, and with that fault mended.

`REPORTED` has, by rule, the script with the fault, what is replaced in it, by what, and the program that it starts.
`LINES` has the line of the fault where that is not the line of the replacement.
"""

from __future__ import annotations

from lint.reported_containers import CONTAINER_LINES, CONTAINERS
from lint.reported_since import LINES_SINCE, SINCE

_HEAD = "#!/bin/bash\n#SBATCH --time=01:00:00\n"
_GPUS = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:4\n#SBATCH --cpus-per-task=16\n"
_ADDRESS = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
_PBS = "#!/bin/bash\n#PBS -l walltime=01:00:00\n"
_HOROVOD = "import horovod.torch as hvd\nhvd.init()\n"
_JAX = "import jax\njax.distributed.initialize()\n"
_LIGHTNING = "import lightning as L\nL.Trainer(devices=4).fit(None)\n"
_POOL = "import multiprocessing\nmultiprocessing.Pool().map(print, [])\n"
_RANK = "import os\nimport torch.distributed as dist\nrank = int(os.environ['RANK'])\n"
_WORKERS = "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"

REPORTED: dict[str, tuple[str, str, str, str]] = {
    "option-alone": (
        _HEAD + "#SBATCH --ntasks=1\nsrun python train.py \\\n  --lr 1\n  --epochs 3\n",
        "--lr 1\n", "--lr 1 \\\n", "",
    ),
    "comment-in-command": (
        _HEAD + "#SBATCH --ntasks=1\nsrun python train.py \\\n  --lr 1 \\\n  # --decay 2 \\\n  --epochs 3\n",
        "  # --decay 2 \\\n", "", "",
    ),
    "path-replaced": (
        _HEAD + "#SBATCH --ntasks=1\nexport PATH=/opt/tool/bin\nsrun ./a.out\n",
        "tool/bin", "tool/bin:$PATH", "",
    ),
    "script-directory": (
        _HEAD + '#SBATCH --ntasks=1\nsource "$(dirname "${BASH_SOURCE[0]}")/env.sh"\nsrun ./a.out\n',
        '$(dirname "${BASH_SOURCE[0]}")', "$SLURM_SUBMIT_DIR", "",
    ),
    "bash-in-sh": (
        "#!/bin/sh\n#SBATCH --time=10\n#SBATCH --ntasks=1\nfiles=(a b)\n./work ${files[0]}\n", "bin/sh", "bin/bash", "",
    ),
    "unset-before-activate": (
        _HEAD + "set -euo pipefail\nsource conda.sh\nconda activate train\n./work\n", "set -euo", "set -eo", "",
    ),
    "expanded-at-submission": (
        "#!/bin/bash\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --time=10\nsrun ./a.out $SLURM_JOB_ID\nEOF\n",
        "<<EOF", "<<'EOF'", "",
    ),
    "array-item-missing": (
        _HEAD + '#SBATCH --array=0-9\n#SBATCH --output=%A_%a\n./work "$(sed -n "${SLURM_ARRAY_TASK_ID}p" list)"\n',
        "0-9", "1-10", "",
    ),
    "other-schedulers-variable": (
        _HEAD + "#SBATCH --ntasks=1\ncd $PBS_O_WORKDIR\n./work\n", "PBS_O_WORKDIR", "SLURM_SUBMIT_DIR", "",
    ),
    "options-behind-script": (
        "#!/bin/bash\nsbatch job.sh --nodes=2\n", "job.sh --nodes=2", "--nodes=2 job.sh", "",
    ),
    "conda-run-holds-output": (
        _HEAD + "#SBATCH --ntasks=1\nconda run -n train python train.py\n", "run -n", "run --live-stream -n", "",
    ),
    "waits-for-one": (
        _HEAD + "#SBATCH --ntasks=2\nsrun -n1 --exact ./a &\nsrun -n1 --exact ./b &\nwait $!\n", "wait $!", "wait", "",
    ),
    "variable-not-set": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=4\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./a.out\n",
        "$SLURM_CPUS_PER_TASK", "${SLURM_CPUS_PER_TASK:-1}", "",
    ),
    "equals-in-short-option": (
        _HEAD + "#SBATCH -N=2\n#SBATCH --ntasks-per-node=2\nsrun ./a.out\n", "-N=2", "-N 2", "",
    ),
    "gpus-not-even": (_HEAD + "#SBATCH --nodes=3\n#SBATCH --gpus=4\nsrun ./a.out\n", "--gpus=4", "--gpus=6", ""),
    "tasks-per-node-ignored": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun --ntasks-per-node=1 ./setup\nsrun ./a.out\n",
        "srun --ntasks-per-node=1", "srun -n 2 --ntasks-per-node=1", "",
    ),
    "slots-on-several-hosts": (
        "#!/bin/bash\n#BSUB -n 8\n#BSUB -W 1:00\n#BSUB -o o.%J\n./simulate --threads 8\n",
        "#BSUB -o", '#BSUB -R "span[hosts=1]"\n#BSUB -o', "",
    ),
    "export-value-cut": (
        _HEAD + "#SBATCH --ntasks=1\n#SBATCH --export=ALL,GPUS=0,1\n./work\n", "GPUS=0,1", "GPUS=0", "",
    ),
    "export-replaces-environment": (
        _HEAD + "#SBATCH --ntasks=1\n#SBATCH --export=DATA=/data\nsrun ./a.out\n", "export=", "export=ALL,", "",
    ),
    "nodelist-over-nodes": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --nodelist=n[01-04]\nsrun ./a.out\n", "nodes=1", "nodes=4", "",
    ),
    "ranks-over-node-gpus": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=40\n#SBATCH --gres=gpu:4\n#SBATCH -c 1\n"
        "mpirun python p.py\n",
        "node=40", "node=4", _HOROVOD,
    ),
    "jax-one-gpu": (_HEAD + _GPUS + "srun -c 16 python p.py\n", "node=1", "node=4", _JAX),
    "lightning-without-srun": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n#SBATCH -c 16\npython p.py\n",
        "python", "unset SLURM_NTASKS SLURM_JOB_NAME\npython", _LIGHTNING,
    ),
    "rank-variable-not-set": (
        _HEAD + "#SBATCH --ntasks=4\nsrun python p.py\n",
        "srun python p.py", "srun bash -c 'RANK=$SLURM_PROCID exec python p.py'", _RANK,
    ),
    "tensor-parallel-over-gpus": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n#SBATCH -c 16\nvllm serve MODEL --tensor-parallel-size 8\n",
        "size 8", "size 4", "",
    ),
    "accelerate-separate-worlds": (
        _HEAD + _GPUS + _ADDRESS + "srun -c 16 bash -c 'accelerate launch --num_processes 8 p.py'\n",
        "--num_processes",
        "--num_machines 2 --machine_rank $SLURM_NODEID --main_process_ip $MASTER_ADDR --num_processes", "",
    ),
    "hostfile-without-slots": (
        _HEAD + _GPUS + "scontrol show hostnames > hosts\ndeepspeed --hostfile hosts p.py\n",
        "hostnames >", "hostnames | sed 's/$/ slots=4/' >", "",
    ),
    "tf-config-missing": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nsrun python p.py\n",
        "srun", "export TF_CONFIG=$(./cluster.sh)\nsrun", _WORKERS,
    ),
    "other-schedulers-launcher": (
        _PBS + "#PBS -l select=2:ncpus=4:mpiprocs=4\ncd $PBS_O_WORKDIR\nsrun ./a.out\n", "srun", "mpiexec", "",
    ),
    "mpirun-in-container": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\napptainer exec i.sif mpirun -np 8 ./a.out\n",
        "apptainer exec i.sif mpirun -np 8", "mpirun -np 8 apptainer exec i.sif", "",
    ),
    "copied-to-first-node": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\ncp -r data $TMPDIR/\nsrun ./a.out $TMPDIR/data\n",
        "cp -r", "srun -N 2 -n 2 cp -r", "",
    ),
    "ray-in-part-of-node": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH -c 4\n"
        "srun -N1 -n1 ray start --head --num-cpus 16 --block &\n./wait-for-ray\npython p.py\nwait\n",
        "srun -N1 -n1", "srun -N1 -n1 -c 16", "",
    ),
    "more-workers-than-cores": (
        _PBS + "#PBS -l select=1:ncpus=8\ncd $PBS_O_WORKDIR\npython p.py --num_workers 16\n",
        "workers 16", "workers 7", "",
    ),
    "steps-share-no-gpus": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=2\n#SBATCH --gres=gpu:2\n#SBATCH -c 8\n"
        "srun --exact -n1 -c8 ./a &\nsrun --exact -n1 -c8 ./b &\nwait\n",
        "srun --exact", "srun --exact --gres=gpu:1", "",
    ),
    "steps-one-by-one": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=8\nfor i in 1 2 3; do\n  srun -n1 ./work $i\ndone\n",
        "ntasks=8", "ntasks=1", "",
    ),
    "mpi-program-alone": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=16\ngmx_mpi mdrun -s a.tpr\n", "gmx_mpi", "srun gmx_mpi", "",
    ),
    "image-for-each-task": (
        _HEAD + "#SBATCH --ntasks=8\nsrun apptainer exec docker://debian:12 ./a.out\n",
        "docker://debian:12", "d.sif", "",
    ),
    "pip-in-each-task": (
        _HEAD + "#SBATCH --ntasks=8\nsrun bash -c 'pip install -r needs.txt && ./a.out'\n",
        "srun bash -c 'pip install -r needs.txt && ./a.out'", "pip install -r needs.txt\nsrun ./a.out", "",
    ),
    "node-rank-fixed": (
        _HEAD + _GPUS + _ADDRESS + "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\nsrun -c 16 bash -c 'torchrun "
        "--nnodes=2 --node_rank=0 --nproc_per_node=4 --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT p.py'\n",
        "node_rank=0", "node_rank=$SLURM_NODEID", "",
    ),
    "agent-idle-gpus": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --gres=gpu:8\n#SBATCH -c 64\naccelerate launch --num_processes 4 p.py\n",
        "processes 4", "processes 8", "",
    ),
    "ranks-half-of-slots": (
        _PBS + "#PBS -l select=2:ncpus=8:mpiprocs=8\ncd $PBS_O_WORKDIR\nmpirun -np 8 ./a.out\n", "-np 8", "-np 16", "",
    ),
    "slots-without-mpiprocs": (
        _PBS + "#PBS -l select=2:ncpus=8\ncd $PBS_O_WORKDIR\nmpirun -np 16 ./a.out\n",
        "ncpus=8", "ncpus=8:mpiprocs=8", "",
    ),
    "hosts-by-hand": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\nmpirun -np 8 -H node01,node02 ./a.out\n",
        " -H node01,node02", "", "",
    ),
    "threads-on-one-core": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=2\n#SBATCH -c 8\nexport OMP_NUM_THREADS=8\n"
        "mpirun -np 2 --bind-to core ./a.out\n",
        "--bind-to core", "--map-by slot:PE=8 --bind-to core", "",
    ),
    "flux-on-first-node": (
        _PBS + "#PBS -l select=4:ncpus=32\ncd $PBS_O_WORKDIR\nflux start ./workflow.sh\n",
        "flux start", "mpiexec -n 4 flux start", "",
    ),
    "ray-head-alone": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --exclusive\nray start --head\npython p.py\n",
        "--nodes=2", "--nodes=1", "",
    ),
    "torque-option": (
        _PBS + "#PBS -l select=1:ncpus=8\n#PBS -d /scratch/work\ncd $PBS_O_WORKDIR\n./work\n",
        "#PBS -d /scratch/work\n", "", "",
    ),
    "option-value": (_HEAD + "#SBATCH --ntasks=1\n#SBATCH --gres=gpu=4\n./work\n", "gpu=4", "gpu:4", ""),
    "option-twice": (
        _HEAD + "#SBATCH --ntasks=1\n#SBATCH --export=ALL\n#SBATCH --export=ALL,A=1\n./work\n",
        "#SBATCH --export=ALL\n", "", "",
    ),
    "pbs-words": (
        "#!/bin/bash\n#$ -cwd\n#$ -l nodes=1:ppn=8\n#$ -l h_rt=1:00:00\n./work\n", "-l nodes=1:ppn=8", "-pe smp 8", "",
    ),
    "directive-variable": (
        "#!/bin/bash\n#$ -wd $PWD\n#$ -l h_rt=1:00:00\n./work\n", "-wd $PWD", "-cwd", "",
    ),
    "gpu-list-by-hand": (
        _HEAD + "#SBATCH --gres=gpu:1\n#SBATCH -c 8\n#SBATCH --array=0-3\n#SBATCH --output=%A_%a\n"
        "export CUDA_VISIBLE_DEVICES=$SLURM_ARRAY_TASK_ID\n./work $SLURM_ARRAY_TASK_ID\n",
        "export CUDA_VISIBLE_DEVICES=$SLURM_ARRAY_TASK_ID\n", "", "",
    ),
    "launcher-in-launcher": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\nsrun bash -c 'srun ./a.out'\n", "'srun ", "'exec ", "",
    ),
    "flux-mini": (
        _HEAD + "#SBATCH -N 2\ncat > run.sh <<'EOF'\n#!/bin/bash\nflux mini submit -n1 ./work\nEOF\n"
        "srun -N2 -n2 flux start ./run.sh\n",
        "flux mini submit", "flux submit", "",
    ),
    "step-waits-for-step": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks=1\nsrun ./server &\n./wait-for-server\nsrun ./client\n",
        "srun", "srun --overlap", "",
    ),
    "loopback-between-nodes": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\nexport NCCL_SOCKET_IFNAME=lo\nsrun ./a.out\n",
        "=lo", "=ib0", "",
    ),
    "array-same-file": (
        _HEAD + "#SBATCH --array=1-9\n#SBATCH -o %A_%a\n./work $SLURM_ARRAY_TASK_ID > out.txt\n",
        "> out.txt", "> out-$SLURM_ARRAY_TASK_ID.txt", "",
    ),
    "queue-of-gpus-without-gpus": (
        _HEAD + "#SBATCH --partition=gpu\n#SBATCH -c 8\napptainer exec --nv t.sif python p.py\n",
        "#SBATCH -c 8", "#SBATCH -c 8\n#SBATCH --gres=gpu:1", "",
    ),
    "threads-over-chunk": (
        _PBS + "#PBS -l select=2:ncpus=36:mpiprocs=36:ompthreads=2\ncd $PBS_O_WORKDIR\nmpiexec ./a.out\n",
        "mpiprocs=36", "mpiprocs=18", "",
    ),
    "array-index-of-other-pbs": (
        _PBS + "#PBS -J 1-10\n#PBS -l select=1:ncpus=1\ncd $PBS_O_WORKDIR\n./work $PBS_ARRAYID\n",
        "PBS_ARRAYID", "PBS_ARRAY_INDEX", "",
    ),
    "stray-words": (
        "#!/bin/bash\n#BSUB -W 1:00\n#BSUB -o o.%J\n#BSUB -n 4\n#BSUB -R rusage[mem=16] span[hosts=1]\n./work\n",
        "rusage[mem=16] span[hosts=1]", '"rusage[mem=16] span[hosts=1]"', "",
    ),
    "lightning-nodes": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n#SBATCH -c 8\n"
        "srun -c 8 python p.py\n",
        "p.py", "p.py --trainer.num_nodes=2", _LIGHTNING,
    ),
    "heap-over-memory": (
        _HEAD + "#SBATCH --ntasks=1\n#SBATCH --mem=8G\nexport NXF_OPTS='-Xms1g -Xmx8g'\nnextflow run main.nf\n",
        "-Xmx8g", "-Xmx6g", "",
    ),
    "more-threads-than-cores": (
        _HEAD + "#SBATCH --cpus-per-task=4\nsamtools sort -@ 16 in.bam\n", "-@ 16", "-@ 4", "",
    ),
    "all-cores-of-node": (
        _HEAD + "#SBATCH --cpus-per-task=2\npython p.py\n", "#SBATCH --cpus-per-task=2", "#SBATCH --exclusive", _POOL,
    ),
    "memory-for-each-slot": (
        "#!/bin/bash\n#$ -cwd\n#$ -pe smp 8\n#$ -l h_vmem=48G\n#$ -l h_rt=1:00:00\n./work\n", "48G", "6G", "",
    ),
    "memory-not-reserved": (
        "#!/bin/bash\n#BSUB -W 1:00\n#BSUB -o o.%J\n#BSUB -n 1\n#BSUB -M 16000\n./work\n",
        "#BSUB -M 16000\n", '#BSUB -M 16000\n#BSUB -R "rusage[mem=16000]"\n', "",
    ),
    "rank-bound-to-core": (
        _HEAD + "#SBATCH --ntasks=1\n#SBATCH -c 8\nmpirun -np 1 ./solver --threads 8\n",
        "-np 1", "-np 1 --bind-to none", "",
    ),
    "devices-over-gpus": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:1\n#SBATCH -c 8\n"
        "srun -c 8 python p.py\n",
        "gpu:1", "gpu:4", _LIGHTNING,
    ),
    "kokkos-gpus": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n#SBATCH -c 8\n"
        "mpirun -np 4 --map-by slot:PE=8 lmp -k on g 1 -sf kk -in in.lj\n",
        "on g 1", "on g 4", "",
    ),
    "directory-left": (
        _PBS + "#PBS -l select=1:ncpus=1\ncd work/one\ncd $PBS_O_WORKDIR\n./run\n", "cd work/one\n", "", "",
    ),
    "blank-before-comma": (
        "#!/bin/bash\nsbatch --dependency=afterok:$A ,afterok:$B job.sh\n", " ,", ",", "",
    ),
    "option-behind-image": (
        _HEAD + "#SBATCH --gres=gpu:1\n#SBATCH -c 8\nsingularity exec i.sif --nv python p.py\n",
        "i.sif --nv", "--nv i.sif", "",
    ),
    "pbs-name": (
        _PBS + "#PBS -N run%1\n#PBS -l select=1:ncpus=1\ncd $PBS_O_WORKDIR\n./run\n", "run%1", "run-1", "",
    ),
    "status-behind-a-pipe": (
        "#!/bin/bash -ue\n#SBATCH --time=10\n#SBATCH --ntasks=1\nseqtk sample in.fq | gzip > out.gz\n",
        "seqtk", "set -o pipefail\nseqtk", "",
    ),
    "signal-not-received": (
        "#!/bin/bash\n#flux: -N 1\n#flux: -t 30m\n#flux: --signal=USR2@5m\nflux run -n 1 ./catcher\n",
        "flux run -n 1 ./catcher", "trap 'kill -USR2 $pid' USR2\nflux run -n 1 ./catcher & pid=$!\nwait $pid", "",
    ),
    "dollar-in-single-quotes": (
        _HEAD + "#SBATCH --nodes=1\nsrun bash -c './a.out --id=\\$SLURM_JOB_ID'\n", "\\$", "$", "",
    ),
    "wait-hides-failures": (
        _HEAD + "#SBATCH --nodes=1\nset -e\n./a &\nwait\n./b\n", "wait", "wait $!", "",
    ),
    "still-to-be-filled-in": (
        _HEAD + "#SBATCH --nodes=1\nimage=<container_image>\n./work $image\n", "<container_image>", "t.sif", "",
    ),
    "array-without-index": (
        _HEAD + "#SBATCH --array=1-16\n#SBATCH -o %A_%a\n./simulate input\n", "input", "$SLURM_ARRAY_TASK_ID", "",
    ),
    "keeps-output-at-home": (
        _PBS + "#PBS -k oe\n#PBS -o /data/logs\n#PBS -l select=1:ncpus=1\ncd $PBS_O_WORKDIR\n./run\n",
        "-k oe", "-k n", "",
    ),
    "pmi-of-two-kinds": (
        _HEAD + "#SBATCH --ntasks=4\nexport I_MPI_PMI_LIBRARY=/usr/lib64/libpmi2.so\nsrun --mpi=pmix ./a.out\n",
        "=pmix", "=pmi2", "",
    ),
    "thread-mpi-options": (
        _HEAD + "#SBATCH --ntasks=2\nsrun gmx_mpi mdrun -ntmpi 2\n", "-ntmpi 2", "-ntomp 1", "",
    ),
    "image-without-slash": (
        _HEAD + "#SBATCH --ntasks=2\nsrun --container-image=t.sqsh ./a.out\n", "t.sqsh", "./t.sqsh", "",
    ),
    "address-of-itself": (
        _HEAD + "#SBATCH --ntasks=2\nexport MASTER_ADDR=\"${MASTER_ADDR}i\"\nsrun ./a.out\n",
        "${MASTER_ADDR}i", "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)", "",
    ),
    "port-of-kernel": (
        _HEAD + "#SBATCH --ntasks=2\nexport MASTER_PORT=$((SLURM_JOB_ID % 16384 + 49152))\nsrun ./a.out\n",
        "49152", "10000", "",
    ),
    "unknown-launch-option": (
        _HEAD + "#SBATCH --ntasks=2\nsrun --n-tasks=2 ./a.out\n", "--n-tasks", "--ntasks", "",
    ),
    "unknown-option": (_HEAD + "#SBATCH --N=1\nsrun ./a.out\n", "--N=1", "-N 1", ""),
    "jsrun-ranks-over-cores": (
        "#!/bin/bash\n#BSUB -W 1:00\n#BSUB -o o.%J\n#BSUB -nnodes 1\njsrun -n1 -a10 -c4 ./a.out\n",
        "-c4", "-c10", "",
    ),
    "step-fills-node": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH --exclusive\n#SBATCH -c 4\nsrun -c 4 ./a.out\n",
        "srun -c", "srun -n 1 -c", "",
    ),
    "program-on-one-of-nodes": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nsrun ray start --address=h:6379 --block &\n"
        "srun --overlap python -m verl.trainer.main_ppo trainer.nnodes=1\nwait\n",
        "nnodes=1", "nnodes=2", "",
    ),
    "broker-for-each-slot": (
        "#!/bin/bash\n#PBS -l walltime=01:00:00\n#PBS -l ncpus=96\ncd $PBS_O_WORKDIR\nmpirun flux start ./work\n",
        "mpirun", "mpirun --map-by ppr:1:node", "",
    ),
    "more-ranks-than-slots": (
        _HEAD + "#SBATCH --nodes=1\n#SBATCH -c 32\nmodule load openmpi\nmpirun -np 32 ./a.out\n",
        "-c 32", "--ntasks=32", "",
    ),
}  # fmt: skip

LINES = {
    "option-alone": 6,
    "bash-in-sh": 4,
    "unset-before-activate": 5,
    "expanded-at-submission": 5,
    "array-item-missing": 5,
    "slots-on-several-hosts": 2,
    "nodelist-over-nodes": 4,
    "ranks-over-node-gpus": 7,
    "jax-one-gpu": 7,
    "hostfile-without-slots": 8,
    "steps-one-by-one": 6,
    "slots-without-mpiprocs": 5,
    "ray-head-alone": 6,
    "option-twice": 5,
    "step-waits-for-step": 7,
    "queue-of-gpus-without-gpus": 3,
    "all-cores-of-node": 4,
    "devices-over-gpus": 7,
    "directory-left": 5,
    "signal-not-received": 4,
    "array-without-index": 3,
    "more-ranks-than-slots": 6,
}

REPORTED |= SINCE | CONTAINERS
LINES |= LINES_SINCE | CONTAINER_LINES
