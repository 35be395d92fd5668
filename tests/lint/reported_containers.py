"""Scripts with the containers of a scheduler, after public reports, in the form of `reported`."""

from __future__ import annotations

_HEAD = "#!/bin/bash\n#SBATCH --time=01:00:00\n"
_ONE = _HEAD + "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n"
_NODES = _HEAD + "#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=4\n"

CONTAINERS: dict[str, tuple[str, str, str, str]] = {
    "batch-script-in-image": (
        _NODES + "#SBATCH --container-image=openmpi\n#SBATCH --container-mount-home\nsrun --mpi=pmix ./mpihello\n",
        "#SBATCH --container-image=openmpi\n#SBATCH --container-mount-home\nsrun",
        "srun --container-image=openmpi --container-mount-home", "",
    ),
    "batch-script-in-image 2": (
        _HEAD + "#SBATCH --nodes=2\n#SBATCH --container-image=./pytorch.sqsh\n./hello\n",
        "#SBATCH --container-image=./pytorch.sqsh\n", "srun --container-image=./pytorch.sqsh ", "",
    ),
    "batch-script-in-image 3": (  # a note: CSCS binds Slurm, and calls this usage experimental
        _NODES + "#SBATCH --environment=pytorch\nsrun ./train\n",
        "#SBATCH --environment=pytorch\nsrun", "srun --environment=pytorch", "",
    ),
    "container-without-image": (
        _NODES + "srun --container-mounts=/data:/data --container-workdir=/data ./train\n",
        "srun", "srun --container-image=./a.sqsh", "",
    ),
    "container-without-image 2": (
        _NODES + "srun --view=default ./train\n", "srun", "srun --uenv=prgenv-gnu/24.11:v1", "",
    ),
    "container-without-image 3": (
        _NODES + "export PYXIS_CONTAINER_MOUNTS=/data:/data\nsrun ./train\n",
        "export PYXIS", "export PYXIS_CONTAINER_IMAGE=./a.sqsh PYXIS", "",
    ),
    "image-reference": (
        _NODES + "srun --container-image nvcr.io/nvidia/pytorch:20.12-py3 ./train\n", "nvcr.io/", "nvcr.io#", "",
    ),
    "image-reference 2": (
        _ONE + "#SBATCH --container-image=nvcr.io#nvidia/pytorch:25.01-py3\n./train\n", "nvcr.io#", "nvcr.io\\#", "",
    ),
    "image-reference 3": (
        _NODES + "srun podman-hpc run --rm nvcr.io#nvidia/pytorch:25.01-py3 ./train\n", "nvcr.io#", "nvcr.io/", "",
    ),
    "image-reference 4": (
        _NODES + "#SBATCH --image=docker://nersc/pytorch:24.06\nsrun shifter ./train\n", "docker://", "docker:", "",
    ),
    "image-reference 5": (_NODES + "srun --environment=edf/torch.toml ./train\n", "edf/", "./edf/", ""),
    "image-reference 6": (_NODES + "srun --uenv=icon.squashfs:/user-environment ./icon\n", "icon.sq", "./icon.sq", ""),
    "image-reference 7": (_NODES + "srun sarus run --mpi docker://a/osu:6 ./osu\n", "docker://", "", ""),
    "image-reference 8": (_NODES + "srun --container-image=oras://a/b:1 ./train\n", "oras", "docker", ""),
    "image-reference 10": (
        _NODES + "srun --container-image=debian --container-mounts '/home/me/foo bar':/root ./train\n",
        "foo bar", "foo_bar", "",
    ),
    "image-reference 11": (
        _NODES + "srun --container-image=debian --container-mounts=/data:/data, ./train\n", "data, ", "data ", "",
    ),
    "image-reference 12": (
        _NODES + "srun --container-image=debian --container-mounts=input:/data ./train\n", "input", "./input", "",
    ),
    "image-reference 13": (
        _NODES + "srun podman-hpc run --rm -v data:/data a/torch:1 ./train\n", "data:", "./data:", "",
    ),
    "image-reference 14": (
        _NODES + "srun sarus run --mount=type=bind,source=/data a/t:1 ./train\n",
        "/data", "/data,destination=/data", "",
    ),
    "image-reference 15": (
        _NODES + "srun shifter --image=docker:a:1 --volume=/data:/etc/conf ./train\n", "/etc/conf", "/conf", "",
    ),
    "container-flag-value": (
        _ONE + "srun --container-image=debian --container-writable true bash -c 'echo Hello'\n",
        "writable true", "writable", "",
    ),
    "container-flag-value 2": (
        _ONE + "srun --container-image=debian --container-mount-home=yes ./train\n", "home=yes", "home", "",
    ),
    "path-not-in-image": (
        _ONE + "srun --container-image=debian --no-container-mount-home ./train $HOME/data\n", "--no-", "--", "",
    ),
    "path-not-in-image 2": (
        _ONE + "srun --container-image=debian --no-container-mount-home ./train ~/data\n",
        "--no-container-mount-home", "--container-mounts=$HOME", "",
    ),
    "path-not-in-image 3": (
        _ONE + "cp data.h5 /tmp/data.h5\nsrun --container-image=debian ./train /tmp/data.h5\n",
        "srun", "srun --container-mounts=/tmp", "",
    ),
    "image-not-entered": (
        _NODES + "#SBATCH --image=docker:nersc/pytorch:24.06\nsrun ./train\n", "srun", "srun shifter", "",
    ),
    "variables-left-outside": (
        _NODES + "export NCCL_DEBUG=INFO\nsrun podman-hpc run --rm a/torch:1 ./train\n",
        "--rm", "--rm -e NCCL_DEBUG", "",
    ),
}  # fmt: skip

CONTAINER_LINES = {
    "image-not-entered": 5, "batch-script-in-image 2": 4, "container-without-image 3": 5, "variables-left-outside": 6,
}  # fmt: skip
"""Lines of findings on other lines than the first one that is mended."""
