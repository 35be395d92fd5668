"""The reference page of the rules, generated from their table."""

from __future__ import annotations

import textwrap

from stackyard.lint.rules import TABLE, Rule

_HEAD = """# Lint: the rules

`stackyard lint SCRIPT...` reads a batch script (`#SBATCH`, `#BSUB`, `#PBS`, `# flux:`, `#$`, and
those of a [plug-in](../design/037-plugins.md) whose scheduler `site.yaml` names) with its launch
lines and reports errors and wasted resources. Each rule names the evidence it needs: the **script**
alone, the **site** file (`--site`), or the program's **source**, if the launch line names a file
next to the script or in the working directory.

- *error*: the scheduler or the launcher rejects the script, or the program cannot start.
- *warning*: the job runs, but incorrectly or wastefully.
- *note*: a low-confidence finding: evidence is missing, or it may be intended. Notes never change
  the exit status (0 without findings, 3 with).
- A rule reports nothing about values that are known only at run time; lint does not guess.
- A head of another scheduler is *not judged*: the summary and a note say so, and with `--json`
  `judged` is false.

`stackyard lint --fix` also writes an equivalent job file; its first lines list what could not be
carried over. What the job must not lose stands under `unanswered:`, and `submit` refuses the file
until you have removed these lines.
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
    said = [textwrap.fill(text, 100, break_long_words=False) for text in (rule.title, f"{rule.reason}.")]
    lines = [f"## {rule.name}", "", said[0], "", said[1], "", "```bash", rule.example, "```", "Instead:"]
    return "\n".join([*lines, "```bash", rule.instead, "```", ""])
