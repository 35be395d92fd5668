"""How a revision is cited: BibTeX, and the Citation File Format 1.2.0 (https://citation-file-format.github.io)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from stackyard.core.late import dataclass
from stackyard.deploy.described.bill import lock_hash
from stackyard.yard.revision.record import BuildRecord

_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "{}&%$#_"},
}  # fmt: skip


@dataclass(frozen=True)
class Citation:
    """What a revision is cited by.

    Attributes:
        identities: what says exactly which software it is: the lock, the base of an extension, the digest of a wrapped
            image; by name.
    """

    module: str
    stack: str
    version: str
    created: str
    summary: str
    identities: Mapping[str, str]

    @property
    def title(self) -> str:
        """The stack with its version."""
        return f"{self.stack} {self.version}"

    @property
    def full_version(self) -> str:
        """The version of the stack with variant and revision: the module without the name of the stack."""
        return self.module.partition("/")[2] or self.version


def citation_of(record: BuildRecord) -> Citation:
    """What a revision is cited by; a lock that cannot be read is left out."""
    identities = {
        "module": record.module, "platform": record.platform, "lock sha256": lock_hash(record),
        "base input hash": record.base_hash,
        "image digest": str(record.container.get("digest", "")), "input hash": record.input_hash,
    }  # fmt: skip
    known = {name: text for name, text in identities.items() if text}
    return Citation(record.module, record.stack, record.version, record.created, record.summary, known)


def bibtex(cited: Citation, site: str = "", url: str = "") -> str:
    """An entry of BibTeX with the hash of the lock.

    Args:
        site: who publishes it; empty: unnamed.
        url: a page about it.
    """
    fields = {
        "title": f"{{{_escaped(cited.title)}}}",
        "author": f"{{{_escaped(site)}}}" if site else "", "version": _escaped(cited.full_version),
        "year": cited.created[:4], "month": cited.created[5:7].lstrip("0"), "howpublished": "Software stack",
        "note": _escaped("; ".join(f"{name} {text}" for name, text in cited.identities.items())),
        "url": url.replace("{", "%7B").replace("}", "%7D"),
    }  # fmt: skip
    key = re.sub(r"[^A-Za-z0-9:.+/-]", "-", cited.module)
    lines = [f"  {name:<12} = {{{text}}}," for name, text in fields.items() if text]
    return "\n".join([f"@misc{{{key},", *lines, "}"]) + "\n"


def cff(cited: Citation, site: str = "", url: str = "") -> str:
    """A file of the Citation File Format; arguments as for `bibtex`."""
    lines = [
        "cff-version: 1.2.0",
        'message: "If you use this software stack, please cite it as below."',
        "type: software",
        f"title: {_quoted(cited.title)}",
        f"version: {_quoted(cited.full_version)}",
        f"date-released: {cited.created[:10]}",
        f"authors: [{{name: {_quoted(site or 'unnamed site')}}}]",
        *([f"abstract: {_quoted(cited.summary)}"] if cited.summary else []),
        *([f"url: {_quoted(url)}"] if url else []),
        "identifiers:",
    ]
    for what, text in cited.identities.items():
        lines += ["  - type: other", f"    value: {_quoted(text)}", f"    description: {_quoted(what)}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A text in YAML: quoted as in JSON, without what YAML cannot have."""
    return json.dumps("".join(sign for sign in " ".join(text.split()) if sign.isprintable()), ensure_ascii=False)


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(sign, sign) for sign in " ".join(text.split()))
