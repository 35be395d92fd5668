"""The reference page of the rules, made from the table itself, so that the two cannot differ."""

from __future__ import annotations

from stackyard.lint.rules import TABLE, Rule

_HEAD = """# Lint: the rules

`stackyard lint SCRIPT...` reads a batch script (`#SBATCH`, `#BSUB`, `#PBS`, `# flux:`) with its launch lines and says
what is wrong or wasteful. Each rule names the evidence it needs: the **script** alone, the **site** file (`--site`), or
the program's **source**, which is read where the launch line names a file beside the script or in the working folder.

- *error*: the scheduler or the launcher refuses it, or the program cannot start.
- *warning*: it runs, but wrong or wastefully.
- *note*: evidence is missing, or it may be meant so. Notes never change the exit code (0 without findings, 3 with).
- A value that only the running script knows makes a rule silent; nothing is guessed.

`stackyard lint --fix` also writes a job file that does the same; its first lines say what could not be taken over.
"""


def reference_text() -> str:
    """The page docs/reference/lint.md."""
    rows = ["| rule | finds | severity | evidence |", "|---|---|---|---|"]
    word = {"refused": "error"}
    for rule in TABLE.values():
        severity = word.get(rule.severity, rule.severity)
        rows.append(f"| [{rule.name}](#{rule.name}) | {rule.title} | {severity} | {', '.join(rule.evidence)} |")
    return "\n".join([_HEAD, *rows, "", *(_section(rule) for rule in TABLE.values())])


def _section(rule: Rule) -> str:
    lines = [f"## {rule.name}", "", rule.title, "", f"{rule.reason}.", "", "```bash", rule.example, "```", "Better:"]
    return "\n".join([*lines, "```bash", rule.instead, "```", ""])
