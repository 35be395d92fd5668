"""Facts about this node that are cheap to read from /proc and /sys; no program is started.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH123, PTH208

import contextlib
import os
import signal
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


OF_USERS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that mean what a program makes of them: they are passed on to the ranks that handle them, and end nothing."""


def slurp(path: "str", most: "int" = 65536) -> "str":
    """The beginning of a small file such as one in /proc; empty if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def addresses() -> "dict[str, list[str]]":
    """The addresses of every interface that is up, IPv4 first, without link-local ones.

    IPv4 by SIOCGIFADDR (netdevice(7)), which gives the first address of an interface; IPv6 from /proc/net/if_inet6.
    """
    import fcntl
    import struct

    by_name = {}  # type: dict[str, list[str]]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith("169.254."):  # RFC 3927: valid on one link only
                by_name.setdefault(name, []).append(address)
    for line in slurp("/proc/net/if_inet6").splitlines():
        digits, _, _, scope, _, name = line.split()
        if scope != "20":
            packed = bytes.fromhex(digits)
            by_name.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, packed))
    return by_name


def is_loopback(address: "str") -> "bool":
    """Whether an address is a loopback address."""
    return address.startswith("127.") or address == "::1"


def cpu_model() -> "str":
    """The processor's name from /proc/cpuinfo (x86 ``model name``, POWER ``cpu``, else the machine type)."""
    names = dict(line.split(":", 1) for line in slurp("/proc/cpuinfo", 4096).splitlines() if ":" in line)
    for key, value in names.items():
        if key.strip() in ("model name", "cpu"):
            return value.strip()
    return os.uname().machine


def gpus() -> "list[dict[str, str]]":
    """The GPUs listed by the drivers, in /proc/driver/nvidia/gpus, and for AMD in the KFD topology."""
    rows = []
    for bus in listed("/proc/driver/nvidia/gpus"):
        text = slurp(f"/proc/driver/nvidia/gpus/{bus}/information")
        info = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}
        rows.append({"vendor": "nvidia", "bus": bus, "name": info.get("Model", ""), "uuid": info.get("GPU UUID", "")})
    root = "/sys/class/kfd/kfd/topology/nodes"
    for node in listed(root):
        info = dict(line.split(None, 1) for line in slurp(f"{root}/{node}/properties").splitlines() if " " in line)
        if info.get("simd_count", "0") != "0":
            name = slurp(f"{root}/{node}/name").strip()
            rows.append({"vendor": "amd", "bus": info.get("location_id", ""), "name": name, "uuid": info["unique_id"]})
    return rows


def listed(directory: "str") -> "list[str]":
    """The sorted names in a directory; empty if it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def size_text(size: "float") -> "str":
    """A number of bytes in readable form: ``3.2 GiB``."""
    unit = "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024.0, larger
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def facts() -> "dict[str, Any]":
    """All facts of this module. `time` is the node's clock now, from which the hub computes an offset."""
    uname = os.uname()
    return {
        "interfaces": addresses(),
        "cpu": cpu_model(),
        "machine": uname.machine,
        "threads": os.sysconf("SC_NPROCESSORS_ONLN"),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / float(1 << 30), 1),
        "kernel": uname.release,
        "libc": os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else "",
        "nvidia_driver": slurp("/proc/driver/nvidia/version").split("\n")[0],
        "amd_driver": slurp("/sys/module/amdgpu/version").strip(),
        "gpus": gpus(),
        "time": time.time(),
    }


def detach() -> "None":
    """Become independent of the launcher: a new session, no open files except the streams, no signals.

    A scheduler's warning (SIGTERM to all processes of a step before its time limit) is for the ranks, which may use the
    time; the agent stays until they have ended.
    """
    with contextlib.suppress(OSError):
        os.setsid()
    os.closerange(3, 256)
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, *OF_USERS):
        signal.signal(number, _stay)
    with contextlib.suppress(OSError, ValueError):  # the CPUs of one rank were inherited, which needs them itself
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))


def _stay(_number: "int", _frame: "object") -> "None":
    """Do nothing; unlike SIG_IGN this is not inherited by the programs that the agent runs."""
