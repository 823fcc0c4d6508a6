"""No module imports itself through others, neither when it is loaded nor later or for its types only."""

import pytest

from tests.architecture.imports import modules

ROOTS = ("busway_broker", "clients", "host", "shared")


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """
    Return the groups of modules that import one another, each sorted.

    Shape:   *imports* has the dotted names that each module imports; a name below a module counts as that module.
    """
    reached: dict[str, set[str]] = {
        module: {_module(name, imports) for name in names} & (imports.keys() - {module})
        for module, names in imports.items()
    }
    # What imports none of the others is in no circle, nor is what imports only such modules.
    while leaves := [module for module, names in reached.items() if not names & reached.keys()]:
        for module in leaves:
            del reached[module]
    for names in reached.values():
        names.intersection_update(reached.keys())
    changed = True
    while changed:
        changed = False
        for known in reached.values():
            more = {each for module in known for each in reached[module]} - known
            known.update(more)
            changed = changed or bool(more)
    groups = {frozenset(other for other in reached[module] if module in reached[other]) for module in reached}
    return sorted(sorted(group) for group in groups if group)


def _module(name: str, imports: dict[str, set[str]]) -> str:
    while name and name not in imports:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize("root", ROOTS)
def test_no_modules_import_one_another(root: str) -> None:
    # The folder of the clients is not part of their names.
    imports = {name.removeprefix("clients."): imported for name, imported in modules(root).items()}
    assert circles(imports) == []


def test_a_circle_is_found() -> None:
    imports = {
        "a": {"a.one"},
        "a.one": {"a.two.Thing", "json"},
        "a.two": {"a.three"},
        "a.three": {"a.one.thing"},
        "a.four": {"a.one"},
    }
    assert circles(imports) == [["a.one", "a.three", "a.two"]]
