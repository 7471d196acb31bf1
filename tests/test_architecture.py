"""docs/explanation/design.md as data: a package imports from those above it, and some libraries
have one home."""

import ast
from functools import cache
from pathlib import Path

from conftest import ROOT

SRC = ROOT / "src" / "rectifiers"

# The packages and the modules beside them, in the order of imports, each with the libraries that it
# alone, or with the others that name them, may import.
PACKAGES = {
    "runtime": {"pytorch_lightning", "rich"},
    "parameters": set(),
    "quadrature": set(),
    "prelu": set(),
    "activations": set(),
    "gains": set(),
    "initializers": set(),
    "initialization": set(),
    "models": {"timm"},
    "theory": set(),
    "explore": set(),
    "data": {"filelock", "pytorch_lightning", "sklearn", "torchvision", "PIL"},
    "runs": {"filelock"},
    "evaluation": {"torchmetrics", "torchvision"},
    "tracking": {"pytorch_lightning", "wandb"},
    "training": {"pytorch_lightning", "torchmetrics"},
    "results": {"jinja2", "matplotlib", "pandas", "rich", "wandb", "wandb_workspaces"},
    "analysis": {"matplotlib", "pandas", "rich", "torchvision"},
    "claims": {"matplotlib", "pandas"},
    "cli": {"hydra", "omegaconf", "rich"},
    "benchmark": {"matplotlib", "pandas"},
}
HOMED = set().union(*PACKAGES.values()) | {"dvc"}
WITHOUT_TORCH = ("runtime", "runs", "results", "claims", "cli")
HEAVY = {
    "torch",
    "pandas",
    "torchvision",
    "torchmetrics",
    "pytorch_lightning",
    "sklearn",
    "scipy",
    "wandb",
}
# The files that may use names which a library keeps to itself.
PRIVATE_NAMES = (
    "runtime.torch_internals",
    "training.lightning",
    "results.wandb_report",
    "tracking.wandb_artifacts",
)
MODULES = {
    path.relative_to(SRC)
    .with_suffix("")
    .as_posix()
    .replace("/", ".")
    .removesuffix(".__init__"): path
    for path in SRC.rglob("*.py")
    if path.parent != SRC or not path.stem.startswith("__")
}

PROGRAMS = {
    path.relative_to(ROOT).as_posix(): path
    for folder in ("scripts", "studies")
    for path in (ROOT / folder).rglob("*.py")
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path, top_level: bool = False) -> set[str]:
    """The modules that a file imports, and of other packages also the names that it takes."""
    tree = parsed(path)
    found: set[str] = set()
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if name.removeprefix("rectifiers.") in MODULES}
            is_ours = node.module.partition(".")[0] == "rectifiers"
            found |= modules if is_ours and modules == names else {node.module} | names
    return found


def package(module: str) -> str:
    """The package that a module of `rectifiers` belongs to."""
    return module.partition(".")[0]


def test_packages_import_only_from_those_above_them() -> None:
    order = list(PACKAGES)
    assert set(map(package, MODULES)) == set(order)
    for name, path in MODULES.items():
        for used in (i for i in imports(path) if i.startswith("rectifiers.")):
            other = package(used.removeprefix("rectifiers."))
            assert order.index(other) <= order.index(package(name)), f"{name} imports {used}"


def test_modules_import_each_other_in_no_circle() -> None:
    edges = {
        name: {i.removeprefix("rectifiers.") for i in imports(p)} & MODULES.keys()
        for name, p in MODULES.items()
    }
    while done := {name for name, used in edges.items() if not used & edges.keys()}:
        edges = {name: used for name, used in edges.items() if name not in done}
    assert not edges, f"circles among {sorted(edges)}"


def test_libraries_stay_in_their_packages() -> None:
    for name, path in MODULES.items():
        used = {i.partition(".")[0] for i in imports(path)} & HOMED
        assert used <= PACKAGES[package(name)], f"{name} imports {used}"


def test_results_and_the_command_line_start_without_torch() -> None:
    light = {name: path for name, path in MODULES.items() if package(name) in WITHOUT_TORCH}
    for name, path in light.items():
        used = imports(path, top_level=True)
        assert not {i.partition(".")[0] for i in used} & HEAVY, name


def private_names(path: Path) -> list[str]:
    """The names with a leading underscore that belong to something else than the file's own
    objects."""
    tree = parsed(path)
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    others = [
        node.attr
        for node in taken
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    parts = [part for name in imports(path) for part in name.split(".")]
    return [
        name for name in (*others, *parts) if name.startswith("_") and not name.startswith("__")
    ]


def test_private_names_stand_in_one_file() -> None:
    found = {
        name: private_names(path)
        for name, path in (MODULES | PROGRAMS).items()
        if name not in PRIVATE_NAMES
    }
    assert not {name: names for name, names in found.items() if names}
    assert all(private_names(MODULES[name]) for name in PRIVATE_NAMES)


def test_files_are_small() -> None:
    files = MODULES | PROGRAMS
    lengths = {name: len(path.read_text().splitlines()) for name, path in files.items()}
    assert not {name: length for name, length in lengths.items() if length > 400}
