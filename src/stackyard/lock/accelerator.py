"""Selects the build of PyTorch for a variant, by its accelerator.

PyPI has one build of torch for each platform, on x86_64 that for the newest CUDA with gigabytes of libraries. PyTorch's
own indexes have one for each accelerator, as local versions such as ``2.9.0+cpu``; uv's ``--torch-backend`` chooses one
by the machine that it runs on. Here the variant decides, then the site's node kinds, as for conda's ``__cuda``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.core.names import canonical, pip_name
from stackyard.inputs.models import PipRequirement, Site, Variant
from stackyard.inputs.sites.sitemodels import TORCH_BACKEND
from stackyard.lock.conda.virtual import NO_GPU, VirtualPackages

HOME = "https://download.pytorch.org/whl"
PLATFORMS = ("linux-64", "linux-aarch64")
"""The platforms that these indexes have builds for."""
AXES = ("accelerator", "cuda", "rocm")
"""The axes of a matrix that name an accelerator."""

# The indexes that exist, newest first, and the packages that they are asked for (uv, crates/uv-torch/src/backend.rs).
CUDA = (
    "cu132", "cu130", "cu129", "cu128", "cu126", "cu124", "cu121", "cu118", "cu117", "cu116", "cu115", "cu113",
    "cu111", "cu110", "cu102", "cu101", "cu100", "cu92",
)  # fmt: skip
ROCM = (
    "rocm7.2", "rocm7.1", "rocm7.0", "rocm6.4", "rocm6.3", "rocm6.2.4", "rocm6.2", "rocm6.1", "rocm6.0", "rocm5.7",
    "rocm5.6", "rocm5.5", "rocm5.4.2", "rocm5.3", "rocm5.2", "rocm5.1.1",
)  # fmt: skip
PACKAGES = frozenset({
    "fbgemm-gpu", "fbgemm-gpu-genai", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "torch",
    "torch-tensorrt", "torchao", "torcharrow", "torchaudio", "torchcodec", "torchcsprng", "torchdistx", "torchrec",
    "torchserve", "torchtext", "torchtune", "torchvision", "triton", "triton-rocm", "triton-xpu", "xformers",
})  # fmt: skip
_SOME_GPU = frozenset({"cuda", "gpu", "nvidia"})
_SOME_AMD = frozenset({"rocm", "amd"})
_LEAST_UNDOTTED = 50
"""A version of CUDA without a dot from here on is one whose dot was left out: 92, 118, 128."""
_BACKEND = re.compile(TORCH_BACKEND)


@dataclass(frozen=True)
class Accelerator:
    """The device type that a stack computes on.

    Attributes:
        name: for messages: ``cpu``, ``cu128``, ``CUDA 12.4``, ``rocm6.2``, ``ROCm``.
        why: the source of this choice, for messages.
        backends: the indexes with builds for it, the preferred one first; empty where no build exists.
        exact: one backend was named, and no other build is acceptable.
    """

    name: str
    why: str
    backends: tuple[str, ...]
    exact: bool = False

    def indexes(self, home: str) -> tuple[str, ...]:
        """The indexes with builds for it, below `home`, the preferred one first.

        Raises:
            InputError: no build exists.
        """
        if not self.backends:
            raise InputError(
                f"torch has no builds for {self.name} ({self.why})",
                hint=f"use one of cpu, {', '.join((*CUDA, *ROCM))}, xpu",
            )
        return tuple(f"{home}/{backend}" for backend in self.backends)

    def accepts(self, version: str, requires: Iterable[str]) -> bool:
        """Whether a build of torch from the configured indexes is for this accelerator.

        Args:
            version: its version, with the local part that names its accelerator, if it has one.
            requires: its requirements; of a build without a local part they tell whether it is for CUDA.
        """
        local = version.partition("+")[2]
        if _BACKEND.fullmatch(local):
            return local in self.backends
        cuda = _cuda_of(requires)
        if local or cuda is None:
            return not self.exact or self.backends == ("cpu",)
        return not self.exact and any(_major(b) >= cuda for b in self.backends if b.startswith("cu"))


def for_variant(
    variant: Variant, requirements: Sequence[PipRequirement], site: Site, platform: str, virtual: VirtualPackages
) -> Accelerator | None:
    """The accelerator that selects a variant's build of torch; None if any build is acceptable.

    The stack's own `torch_backend` comes first, or that of the command. Any build is acceptable if it or the site's is
    ``off``, if no builds exist for the platform, and if the file itself names the sources of its packages.

    Args:
        requirements: the variant's pip requirements for the platform.
        virtual: the virtual packages that the variant is locked for.
    """
    own = variant.torch_backend
    if (own or site.pip.torch_backend) == "off" or platform not in PLATFORMS:
        return None
    if own:
        return _exact(own, f"torch_backend is {own}")
    if _has_own_places(variant, requirements):
        return None
    return requested(requirements) or accelerator(variant.axes, site, platform, virtual)


def _has_own_places(variant: Variant, requirements: Iterable[PipRequirement]) -> bool:
    options = variant.environment.pip_options
    named = options.index_url or options.extra_index_urls or options.find_links or options.no_index
    return bool(named) or any(canonical(r.name) == "torch" and (r.index or r.kind != "name") for r in requirements)


def accelerator(axes: Mapping[str, str], site: Site, platform: str, virtual: VirtualPackages) -> Accelerator | None:
    """The accelerator of a variant: by its axes, else the site's `torch_backend`, else its node kinds or this machine.

    An axis such as ``rocm: none`` means the CPU only where no other axis names a GPU. None if the axis has a value that
    only the stack defines.
    """
    words = {axis: word for axis in AXES if (word := axes.get(axis, "").lower().strip())}
    named = {axis: word for axis, word in words.items() if word not in NO_GPU}
    for axis, word in words.items():
        if word in NO_GPU and (axis == "accelerator" or not named):
            return _exact("cpu", f"the axis {axis} is {word}")
    for axis, word in named.items():
        if word not in _SOME_GPU and not (word in _SOME_AMD and axis != "rocm" and "rocm" in named):
            return _named(axis, word)
    if site.pip.torch_backend:
        return _exact(site.pip.torch_backend, "pip: torch_backend: in site.yaml")
    return _of_nodes(site, platform, virtual, asks_gpu=bool(named))


def requested(requirements: Iterable[PipRequirement]) -> Accelerator | None:
    """The accelerator of a requirement such as ``torch==2.9.0+cu128``, or None."""
    for requirement in requirements:
        match = re.search(rf"==\s*[^,;\s]*\+({_BACKEND.pattern})(?=[,;\s]|$)", requirement.line)
        if match and pip_name(requirement.line) in PACKAGES:
            return _exact(match.group(1), f"requested: {requirement.line}")
    return None


def _named(axis: str, word: str) -> Accelerator | None:
    why = f"the axis {axis} is {word}"
    number = re.search(r"\d+(\.\d+)*$", word)
    if axis == "cuda" or re.match(r"cu(da)?[-_ ]?\d", word):
        return _cuda(number.group(0), why) if number else None
    if word in _SOME_AMD:
        return Accelerator("ROCm", why, ROCM)
    if axis == "rocm" or word.startswith("rocm"):
        return _exact(f"rocm{number.group(0)}", why) if number else None
    return _exact("xpu", why) if word in ("xpu", "intel") else None


def _cuda(number: str, why: str) -> Accelerator:
    """The accelerator for a CUDA number: ``12.8`` or ``128`` is one backend; ``12`` any of CUDA 12."""
    if "." in number or int(number) >= _LEAST_UNDOTTED:
        return _exact(f"cu{''.join(number.split('.')[:2])}", why)
    return _family(number, why, f"CUDA {number}")


def _family(version: str, why: str, name: str) -> Accelerator:
    """An accelerator with all builds that a driver for a CUDA version runs: the same major version, then older ones.

    Within a major version a build may be newer than the driver (NVIDIA, "CUDA Compatibility", minor versions).
    """
    major = int(version.split(".", maxsplit=1)[0])
    return Accelerator(name, why, tuple(backend for backend in CUDA if _major(backend) <= major))


def _exact(backend: str, why: str) -> Accelerator:
    """The accelerator of one backend; if no builds exist for it, that is an error only for a stack with torch."""
    exists = backend in ("cpu", "xpu", *CUDA, *ROCM)
    return Accelerator(backend, why, (backend,) if exists else (), exact=True)


def _of_nodes(site: Site, platform: str, virtual: VirtualPackages, *, asks_gpu: bool) -> Accelerator | None:
    """The accelerator by the site's node kinds, as for conda's virtual packages; without node kinds by this machine."""
    kinds = [kind for kind in site.nodes.values() if kind.platform == platform]
    cuda = virtual.version("__cuda")
    if cuda:
        return _family(cuda, "of the site's node kinds" if kinds else "of this machine", f"CUDA {cuda}")
    vendors = {kind.gpu.vendor for kind in kinds}
    if "amd" in vendors:
        return Accelerator("ROCm", "the site's node kinds have GPUs of AMD", ROCM)
    if "intel" in vendors:
        return Accelerator("xpu", "the site's node kinds have GPUs of Intel", ("xpu",))
    if asks_gpu:
        return None
    none = "no GPU in any node kind of the site" if kinds else "this machine has no GPU, and the site no node kinds"
    return Accelerator("cpu", none, ("cpu",))


def _cuda_of(requires: Iterable[str]) -> int | None:
    """The major version of CUDA that a build of torch requires, by the names of NVIDIA's wheels; None without any."""
    names = [name for name in map(pip_name, requires) if name.startswith(("nvidia-", "cuda-"))]
    majors = [int(match.group(1)) for name in names if (match := re.search(r"-cu(\d\d)$", name))]
    return max(majors) if majors else 13 if names else None  # since CUDA 13 most names have no number


def _major(backend: str) -> int:
    digits = backend.removeprefix("cu")
    return int(digits[:-1]) if digits.isdigit() else 0
