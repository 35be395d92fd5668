"""A bill of materials as CycloneDX 1.6 JSON (https://cyclonedx.org/docs/1.6/json/)."""

from __future__ import annotations

from typing import Any

from stackyard import __version__
from stackyard.deploy.described.bill import Bill, Component
from stackyard.lock.licencetexts import spdx

_ALGORITHMS = {"sha256": "SHA-256", "md5": "MD5"}


def cyclonedx(bill: Bill) -> dict[str, Any]:
    """The document. The stack is its root component; what is not known is a property of it and a composition."""
    root = bill.record.module
    depends = [{"ref": root, "dependsOn": sorted(bill.direct)}]
    depends += [{"ref": c.purl, "dependsOn": list(c.needs)} for c in bill.components]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{bill.number}",
        "version": 1,
        "metadata": {
            "timestamp": bill.record.created,
            "lifecycles": [{"phase": "build" if bill.record.origin.again == "build" else "discovery"}],
            "tools": {"components": [{"type": "application", "name": "stackyard", "version": __version__}]},
            "component": _root(bill),
        },
        "components": [_component(component) for component in bill.components],
        "dependencies": depends,
        "compositions": [{"aggregate": "unknown" if bill.is_opaque else "complete", "assemblies": [root]}],
    }


def _root(bill: Bill) -> dict[str, Any]:
    record = bill.record
    digest = record.form.sha256
    facts = [{"name": f"stackyard:{name.replace(' ', '_')}", "value": value} for name, value in bill.facts.items()]
    return {
        "type": "container" if bill.is_opaque else "application",
        "bom-ref": record.module,
        "name": record.stack,
        "version": bill.version,
        **({"description": record.summary} if record.summary else {}),
        **({"hashes": [{"alg": "SHA-256", "content": digest}]} if digest else {}),
        "properties": facts + [{"name": "stackyard:note", "value": note} for note in bill.notes],
    }


def _component(component: Component) -> dict[str, Any]:
    hashes = [{"alg": _ALGORITHMS[name], "content": digest} for name, digest in component.hashes.items()]
    kind = "vcs" if component.url.startswith("git+") else "distribution"
    return {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        **({"version": component.version} if component.version else {}),
        "purl": component.purl,
        **({"hashes": hashes} if hashes else {}),
        **({"licenses": [_licence(component.licence)]} if component.licence else {}),
        **({"externalReferences": [{"type": kind, "url": component.url}]} if component.url else {}),
        **({"properties": [{"name": "stackyard:of_base", "value": "true"}]} if component.of_base else {}),
    }


def _licence(text: str) -> dict[str, Any]:
    """An SPDX expression, else the package's own words as a name."""
    expression = spdx(text)
    return {"expression": expression} if expression else {"license": {"name": text}}
