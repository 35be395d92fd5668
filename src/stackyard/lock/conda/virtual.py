"""Virtual packages of the target machine of a lock: from the site's node kinds, not from the login node.

So a login node without a GPU can lock with ``__cuda``, and x86 can lock for POWER.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from stackyard.core.late import dataclass
from stackyard.host.machine.platforms import machine_of, this_platform
from stackyard.host.machine.probe import machine
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, Site

# The highest CUDA version that a driver branch runs (NVIDIA, CUDA Toolkit release notes, table of driver versions).
CUDA_OF_DRIVER: tuple[tuple[tuple[int, ...], str], ...] = (
    ((590,), "13.1"), ((580,), "13.0"), ((575,), "12.9"), ((570,), "12.8"), ((565,), "12.7"), ((560,), "12.6"),
    ((555,), "12.5"), ((550,), "12.4"), ((545,), "12.3"), ((535,), "12.2"), ((530,), "12.1"), ((525,), "12.0"),
    ((520,), "11.8"), ((515,), "11.7"), ((510,), "11.6"), ((495,), "11.5"), ((470,), "11.4"), ((465,), "11.3"),
    ((460,), "11.2"), ((455,), "11.1"), ((450,), "11.0"), ((440, 33), "10.2"), ((418, 39), "10.1"),
    ((410, 48), "10.0"), ((396, 26), "9.2"), ((390,), "9.1"), ((384, 81), "9.0"), ((375, 26), "8.0"),
)  # fmt: skip
OLDEST_GLIBC = "2.17"
OLDEST_KERNEL = "4.18"
NO_GPU = frozenset({"cpu", "none", "no"})
"""The values of the axis `accelerator` for a variant without one."""


@dataclass(frozen=True)
class VirtualPackages:
    """Virtual packages as ``name=version=build``, and notices about their origin."""

    packages: tuple[str, ...]
    notices: tuple[str, ...] = ()

    def version(self, name: str) -> str:
        """The version of a virtual package, or an empty string."""
        return next((p.split("=")[1] for p in self.packages if p.startswith(f"{name}=")), "")


def uses_gpu(axes: Mapping[str, str]) -> bool:
    """Whether a variant may use a GPU: not if its axis `accelerator` is ``cpu``."""
    return axes.get("accelerator", "").lower() not in NO_GPU


def cuda_of(gpu: Gpu) -> str:
    """The highest CUDA version that a node kind's GPUs support: as given, else by the driver; empty without GPUs."""
    if gpu.vendor not in ("", "nvidia") or (not gpu.count and not gpu.cuda and not gpu.driver):
        return ""
    if gpu.cuda or not gpu.driver:
        return gpu.cuda
    driver = _numbers(gpu.driver)
    return next((cuda for least, cuda in CUDA_OF_DRIVER if driver >= least), "")


def declared(site: Site, platform: str, axes: Mapping[str, str]) -> VirtualPackages | None:
    """Virtual packages of the site's node kinds of a platform; None if the site has no such kind.

    Of several kinds, the oldest glibc, kernel and (among those with GPUs) CUDA are taken, so that the stack runs on
    all. A variant whose ``accelerator`` axis is ``cpu`` gets no ``__cuda``.
    """
    kinds = [kind for kind in site.nodes.values() if kind.platform == platform]
    if not kinds:
        return None
    notices = []
    cudas = [c for kind in kinds if (c := cuda_of(kind.gpu))]
    cuda = min(cudas, key=_numbers) if cudas and uses_gpu(axes) else ""
    if cudas and len(set(cudas)) > 1 and cuda:
        notices.append(f"{platform}: node kinds have different CUDA versions; locked for the oldest, {cuda}")
    glibc = _oldest([k.glibc for k in kinds])
    if not glibc:
        glibc = OLDEST_GLIBC
        notices.append(f"{platform}: no node kind has a `glibc:`; locked for {glibc}, the oldest in use")
    kernel = _oldest([k.kernel for k in kinds]) or OLDEST_KERNEL
    return VirtualPackages(
        _packages(platform, glibc, kernel, cuda, _microarchitecture(platform, kinds)), tuple(notices)
    )


def for_platform(site: Site, platform: str, axes: Mapping[str, str], *, conda: bool = True) -> VirtualPackages:
    """The virtual packages to lock for: the site's, else this machine's, else conservative defaults with a notice.

    Args:
        conda: whether conda packages are solved with them; else rattler, which starts slowly, does not probe this
            machine.
    """
    declaration = declared(site, platform, axes)
    if declaration is not None:
        return declaration
    if platform == this_platform():
        rattlers = conda or any(name.startswith("CONDA_OVERRIDE_") for name in os.environ)
        return (_detected if rattlers else _probed)(gpu=uses_gpu(axes))
    notice = (
        f"{platform}: the site has no node kind of this platform; locked for glibc {OLDEST_GLIBC}, "
        f"Linux {OLDEST_KERNEL} and no GPU (to change this, add it to nodes: in site.yaml)"
    )
    return VirtualPackages(_packages(platform, OLDEST_GLIBC, OLDEST_KERNEL, "", machine_of(platform)), (notice,))


def _packages(platform: str, glibc: str, kernel: str, cuda: str, archspec: str) -> tuple[str, ...]:
    kernel = re.sub(r"[^0-9.].*", "", kernel)
    packages = [f"__archspec=1={archspec}"] if archspec else []
    packages += [f"__cuda={cuda}=0"] if cuda else []
    return (*packages, f"__glibc={glibc}=0", f"__linux={kernel}=0", "__unix=0=0")


def _detected(*, gpu: bool) -> VirtualPackages:
    """This machine's virtual packages, by rattler; without GPUs if the variant does not use them."""
    from rattler import VirtualPackage, VirtualPackageOverrides

    generic = [p.into_generic() for p in VirtualPackage.detect(VirtualPackageOverrides.from_env())]
    packages = tuple(sorted(f"{p.name.normalized}={p.version}={p.build_string}" for p in generic))
    return VirtualPackages(packages if gpu else tuple(p for p in packages if not p.startswith("__cuda=")))


def _probed(*, gpu: bool) -> VirtualPackages:
    """This machine's virtual packages, by our own probe; the micro-architecture is coarser, which pip ignores."""
    node = machine()
    cuda = node.cuda if gpu else ""
    return VirtualPackages(_packages(node.platform, node.glibc, node.kernel, cuda, node.microarchitecture))


def _microarchitecture(platform: str, kinds: Sequence[NodeKind]) -> str:
    named = {k.microarchitecture for k in kinds}
    if len(named) == 1 and named != {""}:
        return named.pop()
    if named and all(re.fullmatch(r"x86_64_v[1-4]", name) for name in named):
        return min(named)
    return machine_of(platform)


def _oldest(versions: Sequence[str]) -> str:
    return min((v for v in versions if v), key=_numbers, default="")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))
