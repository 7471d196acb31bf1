"""The drawing in docs/design.md, held as data: imports point downward, and some libraries live in one place."""

import ast
from pathlib import Path

from conftest import ROOT

SRC = ROOT / "src" / "rectifiers"

# A module imports from rows above its own in this list (lower in the house), never from its own row or below.
ROWS = [
    ["config", "seeds", "compiling", "runs.shape", "tracking.guard"],
    [
        "data.native.binding",
        "kernels.cpu",
        "quadrature",
        "runs.record",
        "runs.identity",
        "runs.provenance",
        "reporting.statistics",
        "reporting.paper",
        "reporting.verdicts",
    ],
    ["kernels.cuda"],
    ["kernels.prelu"],
    [
        "activations",
        "distributed",
        "runs.lock",
        "runs.scores",
        "reporting.console",
        "reporting.figures",
        "reporting.layout",
        "reporting.belonging",
        "reporting.page.embedding",
    ],
    [
        "stopping",
        "runs.folder",
        "runs.lookup",
        "reporting.structure",
        "reporting.comparison",
        "reporting.measures",
        "reporting.signal",
    ],
    [
        "composition",
        "runs.sweep",
        "reporting.tables",
        "reporting.claims",
        "reporting.commands",
        "reporting.listing",
        "reporting.page.arms",
    ],
    [
        "reporting.against_paper",
        "reporting.claims_table",
        "reporting.claim_figures",
        "reporting.terminal",
        "reporting.page.blocks",
        "reporting.page.images",
    ],
    ["reporting.page.sections", "reporting.page.runs"],
    ["reporting.page.document"],
    ["tracking.contents", "tracking.sent"],
    ["tracking.results"],
    ["tracking.client"],
    ["tracking.mirror", "tracking.report"],
    ["tracking.sync"],
    ["data.archives", "data.originals", "data.parallel", "data.store"],
    ["data.devkit", "data.pins"],
    [
        "initializers",
        "models.spec",
        "models.pyramid",
        "data.transforms",
        "data.samplers",
        "data.sources",
        "data.preprocess",
        "data.preparation",
    ],
    [
        "models.network",
        "data.statistics",
        "data.shards",
        "data.reading",
        "evaluation.views",
        "evaluation.counters",
        "evaluation.responses",
        "evaluation.calibration",
    ],
    ["data.module", "data.imagenet", "data.colors", "evaluation.windows"],
    ["evaluation.protocols", "analysis.fisher"],
    ["evaluation.testing", "training.optim", "training.schedule", "training.divergence", "training.isolation"],
    ["training.module", "evaluation.ensemble"],
    ["training.assembly", "training.callbacks", "training.interventions", "training.looking"],
    ["training.results", "training.preflight", "training.checkpoints"],
    ["training.trainer"],
    ["training.run"],
    ["training.ensemble", "training.cells"],
    ["analysis.settings", "analysis.output", "analysis.theory", "analysis.subject"],
    ["analysis.gain", "analysis.propagation", "analysis.responses", "analysis.histograms", "analysis.components"],
    ["analysis.slopes", "analysis.figures", "analysis.tables"],
    ["help"],
    ["cli"],
]
ROW = {module: row for row, modules in enumerate(ROWS) for module in modules}

ONLY_IN = {
    "pytorch_lightning": ("training.", "data.module", "distributed"),
    "hydra": ("cli", "help", "composition", "reporting.commands"),
    "omegaconf": ("cli", "composition", "reporting.commands"),
    "jinja2": ("reporting.page.document",),
    "vl_convert": ("reporting.page.document",),
    "wandb": ("tracking.client", "tracking.results", "tracking.report"),
    "wandb_workspaces": ("tracking.report",),
    "dvc": (),
}
WITHOUT_TORCH = (
    "config",
    "seeds",
    "help",
    "composition",
    "cli",
    "distributed",
    "stopping",
    "runs.",
    "reporting.",
    "tracking.",
    "models.spec",
    "training.schedule",
)


def modules() -> dict[str, Path]:
    names = {path.relative_to(SRC).with_suffix("").as_posix().replace("/", "."): path for path in SRC.rglob("*.py")}
    return {name: path for name, path in names.items() if not name.endswith("__init__")}


def imports(path: Path, top_level: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_module_has_its_row() -> None:
    assert set(modules()) == set(ROW)


def test_imports_point_downward() -> None:
    for name, path in modules().items():
        inner = {i.removeprefix("rectifiers.") for i in imports(path) if i.startswith("rectifiers.")}
        for used in inner & ROW.keys():
            assert ROW[used] < ROW[name], f"{name} imports {used}"


def test_libraries_stay_in_their_place() -> None:
    for name, path in modules().items():
        for library in {i.partition(".")[0] for i in imports(path)} & ONLY_IN.keys():
            assert name.startswith(ONLY_IN[library]) if ONLY_IN[library] else False, f"{name} imports {library}"


def test_tables_and_help_do_without_torch() -> None:
    heavy = {"torch", "torchvision", "torchmetrics", "pytorch_lightning", "sklearn", "scipy", "wandb"}
    light = {name: path for name, path in modules().items() if name.startswith(WITHOUT_TORCH)}
    for name, path in light.items():
        used = imports(path, top_level=True)
        assert not {i.partition(".")[0] for i in used} & heavy, name
        inner = {i.removeprefix("rectifiers.") for i in used if i.startswith("rectifiers.")} & ROW.keys()
        assert inner <= light.keys(), f"{name} imports {inner - light.keys()}, which may import torch"


def test_rooms_are_small() -> None:
    long = {name: n for name, path in modules().items() if (n := len(path.read_text().splitlines())) > 400}
    assert not long
