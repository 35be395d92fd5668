"""A check of every stack: it is not larger than this site's file system can bear."""

from stackyard.verify.checks.base import Check
from stackyard.verify.context import Context
from stackyard.verify.report import CheckResult

STACKYARD_PROTOCOL = 1
LIMIT_GIB = 50


def run(context: Context) -> list[CheckResult]:
    """The size of all files of the stack."""
    gib = sum(file.st_size for file in context.tree.values()) / 2**30
    detail = f"{gib:.1f} GiB of {LIMIT_GIB}"
    if gib <= LIMIT_GIB:
        return [CheckResult("own", "size", "passed", detail)]
    return [CheckResult("own", "size", "failed", detail, "leave out packages that are not imported")]


size = Check(("own",), "own", run, lambda record: record.origin.owns_files, "the size of the stack")
