"""Applies the site's pins, which are conda MatchSpecs, to pip packages; and finds their lines in site.yaml.

A pin holds for the distribution that PyPI has for its conda name. uv gets the part that PEP 440 can express as a
constraint; the solution is then compared with every pin by conda's rules. Builds and channels have no meaning for pip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.names import OTHERS_ON_PYPI, PYPI_NAMES, canonical
from stackyard.lock.lockfile.model import CondaPackage, PipPackage
from stackyard.lock.satisfied import conda_satisfies


@dataclass(frozen=True)
class Pin:
    """A pin in pip's terms.

    Attributes:
        text: the pin as written by the site.
        name: the name of the distribution.
        version: conda's expression; empty where the pin names none.
        specifier: the version as a PEP 440 specifier; empty if that cannot express it.
        besides: the parts other than a version: build, channel.
    """

    text: str
    name: str
    version: str = ""
    specifier: str = ""
    besides: str = ""

    def accepts(self, version: str) -> bool:
        """Whether a distribution of this version satisfies it; a local part (``+cu128``) counts if the pin has one."""
        if not self.version:
            return True
        text = version if "+" in self.version else version.partition("+")[0]
        return conda_satisfies(
            CondaPackage(self.name, text, "0", 0, "noarch", "", "", ""), f"{self.name} {self.version}"
        )


def for_pip(texts: Iterable[str]) -> list[Pin]:
    """The pins that concern a distribution."""
    return [pin for text in texts if (pin := _pin(text)) is not None]


@lru_cache(maxsize=256)
def _pin(text: str) -> Pin | None:
    from stackyard.inputs.conda.matchspec import parse_matchspec
    from stackyard.inputs.conda.versionspec import canonical_version

    spec = parse_matchspec(text, Where(), base_dir=Path("/"))
    if spec.url or spec.name in OTHERS_ON_PYPI:
        return None
    version = canonical_version(spec.version) if spec.version else ""
    besides = " and ".join(word for word, value in (("build", spec.build), ("channel", spec.channel)) if value)
    name = PYPI_NAMES.get(spec.name, canonical(spec.name))
    return Pin(text, name, "" if version == "*" else version, _specifier(version), besides)


def _specifier(version: str) -> str:
    """A conda version expression as a PEP 440 specifier; empty for alternatives and versions such as ``2023a``."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if any(char in version for char in "|()"):
        return ""
    parts = (f"=={part}" if part[0] not in "=<>!~" else part for part in version.split(",") if part and part != "*")
    try:
        return str(SpecifierSet(",".join(parts)))
    except InvalidSpecifier:
        return ""


def constraints(texts: Iterable[str], names: Collection[str]) -> dict[str, str]:
    """The pins as constraint lines for uv, by their text.

    Args:
        names: distributions from conda or a base, to which pins were applied already.
    """
    pins = [pin for pin in for_pip(texts) if pin.name not in names and pin.specifier]
    return {pin.text: f"{pin.name}{pin.specifier}" for pin in pins}


def require_held(texts: Iterable[str], packages: Sequence[PipPackage], file: str) -> tuple[str, ...]:
    """Require that packages satisfy the pins; returns notices about pins with a build or channel, which pip ignores.

    Raises:
        InputError: a package does not satisfy a pin that PEP 440 cannot express.
    """
    notices = []
    for pin in for_pip(texts):
        for package in (p for p in packages if canonical(p.name) == pin.name):
            if package.version and not pin.accepts(package.version):
                raise InputError(
                    f"{package.name} {package.version} of pip conflicts with the site's pin {shown([pin.text], file)}",
                    hint=f"require a version of {package.name} that it allows; or write the pin as one range",
                )
            if pin.besides:
                what = f"the {pin.besides} of the site's pin `{pin.text}` cannot be applied to pip's {package.name}"
                notices.append(f"{what}, only its version" if pin.version else what)
    return tuple(notices)


def violated(texts: Iterable[str], package: PipPackage) -> str:
    """The first pin that a locked package does not satisfy, or an empty string."""
    pins = (pin for pin in for_pip(texts) if pin.name == canonical(package.name) and package.version)
    return next((pin.text for pin in pins if not pin.accepts(package.version)), "")


def shown(texts: Iterable[str], file: str) -> str:
    """Pins with their places in the site's file, for a message."""
    from stackyard.inputs.sites.site import place_of_pin

    return " or ".join(f"`{text}` ({place_of_pin(file, text).in_short})" if file else f"`{text}`" for text in texts)
