"""podman-hpc of NERSC: ``podman-hpc run`` before the program (podman-run(1), and the modules.d of podman-hpc)."""

from __future__ import annotations

from stackyard.launch.request.options import Table, names
from stackyard.lint.systems.base import Bind, Fault, Found, System, colon_binds, is_path, meant, slashed


def binds(value: str) -> Found:
    """``SRC:DST[:OPTIONS]``; ``type=bind,source=..,target=..`` of --mount."""
    if "=" in value.partition(":")[0]:
        return keyed(value, "podman")

    def fault(entry: str, source: str, target: str) -> Fault | None:
        if not is_path(source):
            text = f"{source} is taken for the name of a volume, and an empty one is made"
            return Fault(text, f"./{entry}", "warning")
        return None if target.startswith(("/", "\ue000")) else Fault(f"podman rejects {entry}: a target begins with /")

    return colon_binds(value, "", fault)


def keyed(value: str, program: str) -> Found:
    """The directory of ``--mount=type=bind,source=SRC,destination=DST[,readonly]``."""
    items = dict(item.partition("=")[::2] for item in value.split(","))
    source, target = (next((items[key] for key in keys if key in items), "") for keys in (_SOURCE, _TARGET))
    if items.get("type", "bind") != "bind":
        return [], []
    if not source or not target:
        return [], [Fault(f"{program} rejects the mount {value}", "type=bind,source=SRC,destination=DST")]
    return [Bind(source, target, "ro" if items.keys() & {"readonly", "ro"} else "")], []


_SOURCE, _TARGET = ("source", "src"), ("destination", "dst", "target")


_VALUED = (
    "volume mount workdir env env-file user entrypoint network net ipc pid shm-size name device security-opt ulimit "
    "group-add cap-add cap-drop annotation label hostname userns cgroups memory cpus cpuset-cpus pull platform arch "
    "add-host dns log-driver restart runtime tmpfs uts storage-opt gpus hooks-dir stop-timeout"
)
_SWITCHES = (  # the last ones are of podman-hpc's own modules; a site may have more
    "rm interactive tty privileged read-only detach init env-host no-hosts quiet tls-verify replace sig-proxy gpu mpi "
    "cuda-mpi nccl openmpi-pmi2 openmpi-pmix cvmfs cfs scratch home jupyter"
)
_SCHEMES = ("docker", "oci", "dir", "docker-archive")
PODMAN = System(
    name="podman-hpc", runtime="podman-hpc", programs={"podman-hpc": "run", "podman-hpc.py": "run"}, positional=True,
    binds=binds, faults=lambda image: slashed(image, "podman", _SCHEMES),
    table=Table(
        names(_VALUED, "v:volume w:workdir e:env u:user h:hostname l:label m:memory"),
        names(_SWITCHES, "i:interactive t:tty d:detach q:quiet"),
    ),
    meanings={
        **meant(image="image", binds="volume mount", workdir="workdir", variables="env"),
        **meant(ours="rm quiet interactive tty name replace"),
        "detach": "a container that goes on beside the job",
        "env-file": "variables in a file of podman's",
        "entrypoint": "another entrypoint: name its program in `program`",
    },
)  # fmt: skip
