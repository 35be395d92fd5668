"""How a revision is cited: BibTeX, and the Citation File Format 1.2.0 (https://citation-file-format.github.io)."""

from __future__ import annotations

import json
import re

from stackyard.deploy.described.bill import Bill

_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "{}&%$#_"},
}  # fmt: skip


def bibtex(bill: Bill, site: str = "", url: str = "") -> str:
    """An entry of BibTeX with the hash of the lock.

    Args:
        site: who publishes it; empty: unnamed.
        url: a page about it.
    """
    record = bill.record
    fields = {
        "title": f"{{{_escaped(f'{record.stack} {record.version}')}}}",
        "author": f"{{{_escaped(site)}}}" if site else "", "version": _escaped(bill.version),
        "year": record.created[:4], "month": str(int(record.created[5:7])), "howpublished": "Software stack",
        "note": _escaped("; ".join(f"{name} {text}" for name, text in _identities(bill).items())),
        "url": url.replace("{", "%7B").replace("}", "%7D"),
    }  # fmt: skip
    key = re.sub(r"[^A-Za-z0-9:.+/-]", "-", record.module)
    lines = [f"  {name:<12} = {{{text}}}," for name, text in fields.items() if text]
    return "\n".join([f"@misc{{{key},", *lines, "}"]) + "\n"


def cff(bill: Bill, site: str = "", url: str = "") -> str:
    """A file of the Citation File Format; arguments as for `bibtex`."""
    record = bill.record
    lines = [
        "cff-version: 1.2.0",
        'message: "If you use this software stack, please cite it as below."',
        "type: software",
        f"title: {_quoted(f'{record.stack} {record.version}')}",
        f"version: {_quoted(bill.version)}",
        f"date-released: {record.created[:10]}",
        f"authors: [{{name: {_quoted(site or 'unnamed site')}}}]",
        *([f"abstract: {_quoted(record.summary)}"] if record.summary else []),
        *([f"url: {_quoted(url)}"] if url else []),
        "identifiers:",
    ]
    for what, text in _identities(bill).items():
        lines += ["  - type: other", f"    value: {_quoted(text)}", f"    description: {_quoted(what)}"]
    return "\n".join(lines) + "\n"


def _identities(bill: Bill) -> dict[str, str]:
    """What says exactly which software it is: the lock, the base of an extension, the digest of a wrapped image."""
    named = ("module", "platform", "lock sha256", "base input hash", "image digest", "input hash")
    return {name: bill.facts[name] for name in named if name in bill.facts}


def _quoted(text: str) -> str:
    """A text in YAML: quoted as in JSON, without what YAML cannot have."""
    return json.dumps("".join(sign for sign in " ".join(text.split()) if sign.isprintable()), ensure_ascii=False)


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(sign, sign) for sign in " ".join(text.split()))
