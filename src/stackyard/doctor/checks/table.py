"""The table of checks, in the order in which findings are shown. A new check is a new row."""

from __future__ import annotations

from stackyard.doctor.checks import gpus, kernel, libraries, limits, network, places, python, shell, yard
from stackyard.doctor.checks.base import Check

_PATH = "the directories of PATH"
_PACKAGES = "the packages of the first Python on PATH, of ~/.local and of PYTHONPATH"
_YARD = "the yard"

TABLE: tuple[Check, ...] = (
    Check("modules", "shell", shell.look_at_modules),
    Check("variables", "shell", shell.look_at_variables),
    Check("environments", "shell", python.look_at_environments, _PATH),
    Check("commands", "shell", python.look_at_commands, _PATH),
    Check("packages", "shell", python.look_at_packages, _PACKAGES),
    Check("libraries", "shell", libraries.look_at_paths, "the directories of LD_LIBRARY_PATH"),
    Check("mpi", "shell", libraries.look_at_mpi, _PATH),
    Check("openmp", "shell", libraries.look_at_openmp, _PACKAGES),
    Check("limits", "machine", limits.look_at_limits),
    Check("control groups", "machine", limits.look_at_groups),
    Check("numa", "machine", limits.look_at_numa),
    Check("mounting", "machine", kernel.look_at_mounting),
    Check("kernel", "machine", kernel.look_at_settings),
    Check("shared memory", "machine", kernel.look_at_shared_memory),
    Check("clock", "machine", kernel.look_at_clock),
    Check("gpus", "machine", gpus.look_at_devices),
    Check("driver", "machine", gpus.look_at_driver, _YARD),
    Check("fabric", "machine", network.look_at_fabric),
    Check("host name", "machine", network.look_at_name),
    Check("room", "machine", places.look_at_room, "the home directory and TMPDIR"),
    Check("mounts", "machine", places.look_at_mounts, "the mounts with a server"),
    Check("rights", "yard", yard.look_at_rights, _YARD),
    Check("leftovers", "yard", yard.look_at_rest, _YARD),
)
