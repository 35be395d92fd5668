"""Runs in an environment with roc-validator, without a network: `validate_crate.py DIRECTORY SEVERITY`.

The one address that the validator reads is RO-Crate's context; it is answered with the terms that our crates use, each
of which is schema.org's there, two apart. A term that is missing here is not in the graph, and its rules fail.
"""

import io
import json
import sys

import requests
from rocrate_validator import models, services

TERMS = (
    "CreateAction CreativeWork Dataset Person SoftwareApplication about actionStatus agent author datePublished "
    "description encodingFormat endTime error hasPart identifier instrument license mentions name object result "
    "softwareVersion startTime version"
)
CONTEXT = {
    **{term: f"http://schema.org/{term}" for term in TERMS.split()}, "File": "http://schema.org/MediaObject",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
}  # fmt: skip


def send(_adapter: object, request: requests.PreparedRequest, **_: object) -> requests.Response:
    """The context; nothing else exists."""
    answer = requests.Response()
    answer.url, answer.request = request.url, request
    answer.status_code = 200 if request.url == "https://w3id.org/ro/crate/1.1/context" else 404
    answer.raw = io.BytesIO(json.dumps({"@context": CONTEXT}).encode())
    answer.headers["Content-Type"] = "application/ld+json"
    return answer


requests.adapters.HTTPAdapter.send = send
settings = services.ValidationSettings(
    rocrate_uri=sys.argv[1], profile_identifier="process-run-crate", no_cache=True,
    requirement_severity=models.Severity[sys.argv[2]],
)  # fmt: skip
result = services.validate(settings)
for issue in result.get_issues():
    print(issue.severity.name, issue.check.identifier, issue.message)
print("PASSED" if result.passed() else "FAILED")
