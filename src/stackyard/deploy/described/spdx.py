"""A bill of materials as SPDX 2.3 JSON (https://spdx.github.io/spdx-spec/v2.3/)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from stackyard import __version__
from stackyard.deploy.described.bill import Bill, Component
from stackyard.lock.licencetexts import spdx as expression_of

_DOCUMENT = "SPDXRef-DOCUMENT"
_ROOT = "SPDXRef-Stack"
_OWN = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")


def spdx(bill: Bill) -> dict[str, Any]:
    """The document. It describes the stack, which contains the packages; what is not known is its comment."""
    references = {c.purl: f"SPDXRef-Package-{number}" for number, c in enumerate(bill.components, 1)}
    name = bill.record.module.replace("/", "-")
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{re.sub('[^A-Za-z0-9._-]', '_', name)}-{bill.number}",
        "creationInfo": {"created": _utc(bill.record.created), "creators": [f"Tool: stackyard-{__version__}"]},
        **({"comment": "\n".join(bill.notes)} if bill.notes else {}),
        "packages": [_root(bill), *(_package(c, references[c.purl]) for c in bill.components)],
        "relationships": list(_relationships(bill, references)),
        **({"hasExtractedLicensingInfos": own} if (own := _own_licences(bill.components)) else {}),
    }


def _utc(time: str) -> str:
    return datetime.fromisoformat(time).astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _root(bill: Bill) -> dict[str, Any]:
    record = bill.record
    digest = record.form.sha256
    return {
        **_common(_ROOT, record.stack, bill.version, ""),
        **({"summary": record.summary} if record.summary else {}),
        "comment": "\n".join(f"{name}: {value}" for name, value in bill.facts.items()),
        "primaryPackagePurpose": "CONTAINER" if bill.is_opaque else "APPLICATION",
        **({"checksums": [{"algorithm": "SHA256", "checksumValue": digest}]} if digest else {}),
    }


def _package(component: Component, reference: str) -> dict[str, Any]:
    sums = [{"algorithm": name.upper(), "checksumValue": digest} for name, digest in component.hashes.items()]
    locator = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component.purl}
    return {
        **_common(reference, component.name, component.version, component.licence),
        "downloadLocation": component.url or "NOASSERTION",
        **({"checksums": sums} if sums else {}),
        "externalRefs": [locator],
        "primaryPackagePurpose": "LIBRARY",
    }


def _common(reference: str, name: str, version: str, licence: str) -> dict[str, Any]:
    return {
        "SPDXID": reference, "name": name, **({"versionInfo": version} if version else {}),
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
        "licenseDeclared": _declared(licence) if licence else "NOASSERTION", "copyrightText": "NOASSERTION",
    }  # fmt: skip


def _declared(text: str) -> str:
    """The SPDX expression of a licence; the package's own words get an identifier of the document."""
    return expression_of(text) or f"LicenseRef-{re.sub('[^A-Za-z0-9.]+', '-', text).strip('-') or 'other'}"


def _own_licences(components: Iterable[Component]) -> list[dict[str, str]]:
    """The identifiers that SPDX does not list, with what the packages say."""
    said: dict[str, str] = {}
    for component in components:
        for reference in _OWN.findall(_declared(component.licence)) if component.licence else ():
            said.setdefault(reference, component.licence)
    return [{"licenseId": reference, "extractedText": text} for reference, text in sorted(said.items())]


def _relationships(bill: Bill, references: dict[str, str]) -> Iterable[dict[str, str]]:
    yield _relation(_DOCUMENT, "DESCRIBES", _ROOT)
    for component in bill.components:
        yield _relation(_ROOT, "CONTAINS", references[component.purl])
    for purl in bill.direct:
        yield _relation(_ROOT, "DEPENDS_ON", references[purl])
    for component in bill.components:
        for need in component.needs:
            yield _relation(references[component.purl], "DEPENDS_ON", references[need])


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
