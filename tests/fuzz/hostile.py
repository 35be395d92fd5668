"""Files made to hurt a reader: long, deep, wide, self-similar. Each fits into a repository."""

from __future__ import annotations

from collections.abc import Iterator

HEAD = "name: e\ndependencies:\n"
DEEP = 3000


def environments() -> Iterator[tuple[str, str]]:
    """environment.yml"""
    yield from _yaml_bombs("name: e\nvariables:\n  X: y\ndependencies: [python]\nmore: ")
    yield "long key", "a." * 50_000 + ": 1\n" + HEAD + "- python\n"
    yield "many keys", HEAD + "- python\nvariables:\n" + "".join(f"  V{n}: x\n" for n in range(20_000))
    yield "many packages", HEAD + "".join(f"- package{n} >={n}\n" for n in range(20_000))
    yield "long package", HEAD + f"- {'a' * 200_000}\n"
    yield "long version", HEAD + f"- a >={'1.' * 50_000}1\n"
    yield "many versions", HEAD + f"- a {'|'.join('>=1,<2' for _ in range(20_000))}\n"
    yield "brackets", HEAD + f"- 'a[{'[' * 20_000}'\n"
    yield "parentheses", HEAD + f"- a {'(' * 5000}>=1{')' * 5000}\n"
    yield "spaces", HEAD + f"- a{' ' * 100_000}b\n"
    yield "selector", HEAD + f"- a  # [{'not ' * 20_000}linux]\n"
    yield "selector or", HEAD + f"- a  # [{' or '.join(['linux'] * 5000)}]\n"
    yield "selector deep", HEAD + f"- a  # [{'(' * 5000}linux{')' * 5000}]\n"
    yield "pip", HEAD + "- pip:\n" + "".join(f"  - p{n}=={n}\n" for n in range(10_000))
    yield "pip spaces", HEAD + f"- pip:\n  - 'a{' ' * 50_000}'\n"
    yield "jinja", HEAD + "- {{ x }}\n" * 5000
    yield "tabs", "\t" * 50_000
    yield "colons", ":" * 50_000
    yield "dashes", "- " * 5000 + "a\n"
    yield "questions", "? " * 3000 + "a\n"
    yield "percent", "%TAG ! a\n" * 5000
    yield "anchors", "a: " + " ".join(f"&a{n}" for n in range(2000))
    yield "channels", "channels:\n" + "".join(f"- https://h{n}/{'x' * 200}\n" for n in range(5000)) + HEAD + "- a\n"


def _yaml_bombs(head: str) -> Iterator[tuple[str, str]]:
    """Documents that are small as text and huge as values."""
    lists = "&a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    yield "aliases", head + lists
    maps = "&m0 {x: y}\n" + "".join(
        f"c{n}: &m{n} {{{', '.join(f'k{i}: *m{n - 1}' for i in range(9))}}}\n" for n in range(1, 9)
    )
    yield "aliases of mappings", head + maps
    merges = "&g0 {x: y}\n" + "".join(f"d{n}: &g{n}\n  <<: [{', '.join([f'*g{n - 1}'] * 20)}]\n" for n in range(1, 12))
    yield "merges", head + merges
    yield "deep list", head + "[" * DEEP + "]" * DEEP + "\n"
    yield "deep mapping", head + "{a: " * DEEP + "1" + "}" * DEEP + "\n"
    yield "deep block", "".join(" " * n + "a:\n" for n in range(1500))
    yield "self", head + "&a [*a]\n"
    yield "long scalar", head + "'" + "x" * 500_000 + "'\n"
    yield "quotes", head + '"' + '\\"' * 100_000 + '"\n'
    yield "backslashes", head + '"' + "\\\\" * 100_000 + '"\n'
    yield "folded", head + ">\n" + "  x\n\n" * 30_000
    yield "comments", head + "1\n" + "# [linux]\n" * 50_000
    yield "wide comments", head + "1 #" + " #" * 50_000 + "\n"
    yield "integer", head + "9" * 100_000 + "\n"
    yield "float", head + "1" * 50_000 + "." + "1" * 50_000 + "\n"
    yield "sexagesimal", head + ":".join(["59"] * 20_000) + "\n"
    yield "hexadecimal", head + "0x" + "f" * 100_000 + "\n"
    yield "surrogate", head + '"\\ud800"\n'


def requirements() -> Iterator[tuple[str, str]]:
    """requirements.txt"""
    yield "spaces", " " * 20_000
    yield "spaces in a line", "a" + " " * 20_000 + "b\n"
    yield "spaces before a comment", ("a" + " " * 5000 + "x\n") * 4
    yield "tabs", "\t" * 20_000 + "#x"
    yield "continued", "\\\n" * 20_000 + "a"
    yield "one continued line", "a==1 \\\n" * 20_000
    yield "hashes", "a==1 " + "--hash=sha256:" + "0" * 64 + " " + ("--hash=sha256:" + "0" * 64 + " ") * 3000
    yield "markers", "a; " + " or ".join(["python_version < '3'"] * 3000)
    yield "deep markers", "a; " + "(" * 3000 + "python_version < '3'" + ")" * 3000
    yield "extras", "a[" + ",".join(f"e{n}" for n in range(20_000)) + "]"
    yield "versions", "a" + ",".join(f">={n}" for n in range(20_000))
    yield "digits of a wheel", f"./a-{'0' * 5000}-py3-none-any.whl\n"
    yield "digits of a version", f"a==1.{'0' * 5000}\nb; python_version < '3.{'0' * 5000}'\n"
    yield "long version", "a==" + "1." * 30_000 + "1"
    yield "long local version", "a==1+" + "a." * 30_000
    yield "long name", "a-" * 50_000
    yield "dots", "." * 50_000
    yield "slashes", "/" * 50_000
    yield "url", "a @ https://h/" + "x" * 100_000
    yield "variables", "a @ https://" + "${A}" * 20_000
    yield "quotes", "--index-url '" + "x" * 50_000
    yield "options", "--extra-index-url https://h/\n" * 20_000
    yield "unknown options", "--x" * 20_000
    yield "dashes", "-" * 50_000
    yield "many", "".join(f"package{n}=={n}\n" for n in range(20_000))
    yield "surrogate", "a @ https://h/%ed%a0%80\n"
    yield "separators", "a\x0b\x0c\x1c\x1d\x85\u2028b\n" * 2000
    yield "brackets", "a" + "[" * 20_000
    yield "at", "a" + "@" * 20_000
    yield "semicolons", "a" + ";" * 20_000


def stacks() -> Iterator[tuple[str, str]]:
    """stack.yaml"""
    head = "name: s\nversions: {'1': {}}\nenvironment: {dependencies: [python]}\n"
    for key in ("matrix", "versions", "environment", "checks"):
        yield (
            f"bomb in {key}",
            "name: s\nenvironment: {dependencies: [a]}\n"
            + "".join(text for name, text in _yaml_bombs(f"{key}: ") if name == "aliases"),
        )
    yield "wide matrix", head + "matrix:\n" + "".join(f"  a{n}: ['0', '1']\n" for n in range(18))
    yield "long axis", head + f"matrix:\n  python: [{', '.join(repr(str(n)) for n in range(20_000))}]\n"
    yield "dotted keys", head + "modules: {" + "a." * 20_000 + ": 1}\n"
    yield "conditions", head + "when: " + "not " * 20_000 + "x\n"
    versions = "".join(f"  '{n}': {{}}\n" for n in range(3000))
    yield "many versions", f"name: s\nversions:\n{versions}environment: {{dependencies: [a]}}\n"
    yield "names", head.replace("name: s", "name: " + "s" * 100_000)
    yield "templates", head + "summary: '" + "{python}" * 20_000 + "'\n"
    yield "imports", head + "imports: [" + ", ".join(["./stack.yaml"] * 2000) + "]\n"
    yield "braces", head + "summary: '" + "{" * 50_000 + "'\n"


def sites() -> Iterator[tuple[str, str]]:
    """site.yaml"""
    yield from (bomb for bomb in _yaml_bombs("nodes: ") if bomb[0] in ("aliases", "deep list", "hexadecimal"))
    yield "cores", "nodes:\n  n: {cores: 999999999, gpus: 999999999, sockets: 99999999}\n"
    yield "reserved", "nodes:\n  n: {cores: 64, reserved_cores: '0-999999999'}\n"
    yield "domains", "nodes:\n  n: {cores: 64, domains: [" + ", ".join(["{cores: 0-7}"] * 5000) + "]}\n"
    yield "many kinds", "nodes:\n" + "".join(f"  n{n}: {{cores: 64, gpus: 4}}\n" for n in range(5000))
    yield "pins", "pins: [" + ", ".join(f"a{n} >=1" for n in range(10_000)) + "]\n"
    yield "naming", "modules: {naming: '" + "{version}" * 20_000 + "'}\n"
    yield "mirrors", "mirrors:\n" + "".join(f"  https://a{n}/: https://b{n}/\n" for n in range(5000))
    yield "long keys", "a." * 20_000 + ": 1\n"
    yield "many unknown keys", "".join(f"key{n}: 1\n" for n in range(5000))


def jobs() -> Iterator[tuple[str, str]]:
    """A job file"""
    head = "format: 1\nprogram: [train.py]\n"
    yield from (bomb for bomb in _yaml_bombs(head + "env: ") if bomb[0] in ("aliases", "deep list", "surrogate"))
    for field in ("nodes", "ranks_per_node", "cores_per_rank", "gpus_per_rank", "threads_per_rank", "smt"):
        for value in (10**8, 10**18, -1, 0):
            yield f"{field} {value}", f"{head}oversubscribe: true\n{field}: {value}\n"
    yield "all at once", f"{head}oversubscribe: true\nnodes: 100000\nranks_per_node: 100000\n"
    yield "program", "format: 1\nprogram: [" + ", ".join(["a"] * 50_000) + "]\n"
    yield "words", "format: 1\nprogram: [train.py, '" + "$(" * 20_000 + "']\n"
    yield "array", head + "batch: {array: '1-999999999'}\n"
    yield "arrays", head + "batch: {array: '" + ",".join(map(str, range(20_000))) + "'}\n"
    yield "time", head + "batch: {time_min: 1.0e+300}\n"
    yield "variables", head + "env:\n" + "".join(f"  V{n}: x\n" for n in range(10_000))
    yield "hosts", head + "batch: {exclude: 'n[1-999999999]'}\n"


def scripts() -> Iterator[tuple[str, str]]:
    """A batch script for lint"""
    head = "#!/bin/bash\n#SBATCH -N 2\n"
    yield "long line", head + "srun " + "x" * 1_000_000 + "\n"
    yield "long word", head + "srun -n 2 " + "a=" * 100_000 + "\n"
    yield "many words", head + "srun " + "a " * 100_000 + "\n"
    yield "dotted", head + "srun " + "a." * 100_000 + "\n"
    yield "dashes", head + "srun " + "-" * 100_000 + "\n"
    yield "options", head + "srun " + "--x=y " * 30_000 + "\n"
    yield "directives", "#!/bin/bash\n" + "#SBATCH --nodes=2\n" * 20_000
    yield "long directive", "#!/bin/bash\n#SBATCH " + "--nodes=2 " * 20_000 + "\n"
    yield "directive values", "#!/bin/bash\n#SBATCH --nodes=" + "9" * 20_000 + "\n"
    yield "spaces", "#!/bin/bash\n#SBATCH" + " " * 100_000 + "-N 2\n"
    yield "semicolons", head + ";" * 50_000
    yield "pipes", head + "a|" * 20_000 + "b\n"
    yield "substitutions", head + "$(" * 10_000
    yield "quotes", head + "'\"" * 20_000
    yield "here documents", head + "cat <<E\n" * 10_000
    yield "functions", head + "f() { f; }\n" * 5000
    yield "variables", head + 'A="$A $A"\n' * 200 + "srun $A\n"
    yield "growing", head + "".join(f'A{n + 1}="$A{n}$A{n}$A{n}$A{n}"\n' for n in range(60)) + "srun $A60\n"
    yield "loops", head + "for i in 1 2; do\n" * 3000
    yield "cases", head + "case $x in\n a)\n" * 3000
    yield "backslashes", head + "\\\n" * 50_000 + "srun a\n"
    yield "steps", head + "srun -n 2 ./a &\n" * 10_000
    yield "arithmetic", head + "N=$((" + "1+" * 20_000 + "1))\nsrun -n $N a\n"
    yield "power", head + "N=$((9**9**9**9))\nsrun -n $N a\n"
    yield "hosts", head + "#SBATCH -w n[1-99999999]\nsrun a\n"
    yield "times", "#!/bin/bash\n#SBATCH -t " + "1:" * 20_000 + "\n"
    yield "lsf", "#!/bin/bash\n#BSUB -nnodes 99999999999\njsrun -n 99999999999 -a 9999999999 ./a\n"
    yield "pbs", "#!/bin/bash\n#PBS -l select=" + "+".join(["1:ncpus=2"] * 20_000) + "\nmpiexec ./a\n"


def locks() -> Iterator[tuple[str, str]]:
    """A lock"""
    head = 'format = 1\nstack = "s"\n'
    yield "dotted keys", head + "a." * 20_000 + "b = 1\n"
    yield "deep arrays", head + "x = " + "[" * 20_000 + "\n"
    yield "deep tables", head + "x = " + "{a=" * 20_000 + "\n"
    yield "integer", head + "x = " + "9" * 100_000 + "\n"
    yield "float", head + "x = " + "1" * 100_000 + ".0\n"
    yield "many variants", head + "[[variant]]\n" * 20_000
    yield "string", head + 'x = "' + "\\u0041" * 50_000 + '"\n'
    yield "date", head + "x = 9999-99-99T99:99:99\n"
    yield "headers", head + "[a]\n" * 20_000
    yield "long header", head + "[" + "a." * 20_000 + "b]\n"
    yield "surrogate", head + 'x = "\\ud800"\n'
    yield "format", "format = " + "1" * 4000 + "\n"
    yield "lists as numbers", head + '[[variant]]\nconda = 1\npip = "x"\n'


def hosts() -> Iterator[tuple[str, str]]:
    """Host lists"""
    yield "range", "n[1-999999999]\n"
    yield "product", "n" + "[0-999]" * 5 + "\n"
    yield "brackets", "n" + "[" * 20_000 + "\n"
    yield "many", ",".join(f"n{n}" for n in range(50_000)) + "\n"
    yield "cores", "0-99999999999\n0-9999999:1\n"
    yield "digits", "n[" + "0" * 20_000 + "1-" + "9" * 5000 + "]\n"


HOSTILE = {
    "environment": environments,
    "requirements": requirements,
    "stack": stacks,
    "site": sites,
    "job": jobs,
    "script": scripts,
    "lock": locks,
    "hosts": hosts,
}
