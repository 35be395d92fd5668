"""Three kinds of contract that import-linter lacks; `make lint` runs them with the others, from pyproject.toml."""

from __future__ import annotations

import ast
import sys
from collections import deque
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

from stackyard.core.doors import names_of


class StandardLibraryOnly(Contract):
    """Everything below `modules` imports the standard library and what lies below `modules`, and nothing else.

    For programs that run on nodes under a Python that has neither this package nor any other. `besides` names packages
    that the Python there may have.
    """

    type_name = "standard_library_only"
    modules = fields.ListField(subfield=fields.StringField())
    besides = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at each direct import."""
        inside = {name for root in self.modules for name in (root, *graph.find_descendants(root))}
        found = [
            f"{importer} -> {imported}"
            for importer in sorted(inside)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported not in inside and imported.partition(".")[0] not in {*sys.stdlib_module_names, *self.besides}
        ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import."""
        for line in check.metadata["found"]:
            output.print_error(line)


class LightToImport(Contract):
    """Importing `modules` does not import `forbidden`, however indirectly.

    Only imports that run at import time count: what a function imports when it is called is its own affair, and that is
    how a heavy library is kept out of commands that do not need it.
    """

    type_name = "light_to_import"
    modules = fields.ListField(subfield=fields.StringField())
    forbidden = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Follow the imports from each module, the shortest chain first."""
        found = [chain for name in self.modules if (chain := self._chain(graph, name))]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each chain."""
        for chain in check.metadata["found"]:
            output.print_error(" -> ".join(chain))

    def _chain(self, graph: ImportGraph, start: str) -> tuple[str, ...]:
        chains, seen = deque([(start,)]), {start}
        while chains:
            chain = chains.popleft()
            if chain[-1].partition(".")[0] in self.forbidden:
                return chain
            for name in sorted(_imported_at_once(graph, chain[-1]) - seen):
                seen.add(name)
                chains.append((*chain, name))
        return ()


def _imported_at_once(graph: ImportGraph, importer: str) -> set[str]:
    """What a module imports when it is imported: its packages, and every import that no function holds."""
    direct = {
        imported
        for imported in graph.find_modules_directly_imported_by(importer)
        if any(
            detail["line_number"] not in _lazy_lines(importer)
            for detail in graph.get_import_details(importer=importer, imported=imported)
        )
    }
    direct |= _through_doors(importer) & graph.modules
    parents = {name.rpartition(".")[0] for name in (importer, *direct)} & graph.modules
    return direct | parents


def _through_doors(importer: str) -> set[str]:
    """The modules that an import of names from doors imports with them (`stackyard.core.doors`)."""
    tree = _tree(importer)
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in node.body
        for inner in ast.walk(part)
    }
    return {
        place
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node not in for_types and node.lineno not in _lazy_lines(importer)
        for alias in node.names
        if (place := _names_of(node.module or "").get(alias.name))
    }


@cache
def _names_of(module: str) -> dict[str, str]:
    """What a door names, with the module that has it; nothing where the module is not a door."""
    if not module.endswith(".api") or (spec := find_spec(module)) is None or spec.origin is None:
        return {}
    return {name: place for name, (place, _) in names_of(spec.origin).items()}


@cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ast.Module([], [])
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


@cache
def _lazy_lines(module: str) -> frozenset[int]:
    """The lines of a module that stand inside a function."""
    functions = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(n for each in functions for n in range(each.lineno, (each.end_lineno or each.lineno) + 1))


class DoorsOnly(Contract):
    """Everything below `importers` knows `rooms` by their doors, ``<room>.api`` and what is below it.

    Unlike the contracts of import-linter it also reads what is imported for type checkers only, and a door itself names
    nothing of another room. `exceptions` are lines ``importer -> imported``.
    """

    type_name = "doors_only"
    package = fields.StringField()
    importers = fields.ListField(subfield=fields.StringField())
    rooms = fields.ListField(subfield=fields.StringField())
    exceptions = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Read each import statement."""
        inside = sorted(name for root in self.importers for name in (root, *graph.find_descendants(root)))
        found = {f"{name} -> {each}" for name in inside for each in _statements(name) if self._is_inner(each)}
        doors = [name for room in self.rooms if (name := f"{self.package}.{room}.api") in graph.modules]
        strange = [
            f"{name} -> {place}"
            for name in doors
            for place in set(_names_of(name).values())
            if not place.startswith(f"{name.removesuffix('api')}")
        ]
        unused = [f"{line}: no such import" for line in self.exceptions if line not in found]
        wrong = [*sorted(found.difference(self.exceptions)), *strange, *unused]
        return ContractCheck(kept=not wrong, metadata={"found": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each import."""
        for line in check.metadata["found"]:
            output.print_error(line)

    def _is_inner(self, module: str) -> bool:
        package, _, rest = module.partition(".")
        room, _, place = rest.partition(".")
        return package == self.package and room in self.rooms and place.partition(".")[0] != "api"


def _statements(module: str) -> set[str]:
    """What the import statements of a module name, wherever they stand."""
    found: set[str] = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found
