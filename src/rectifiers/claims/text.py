"""What the pages of claims share: the setting of runs in words, and templates."""

from collections.abc import Iterable
from pathlib import Path

from rectifiers.claims.judge import ClaimResult
from rectifiers.results.documents import literal
from rectifiers.results.frame import SAME_IMAGES
from rectifiers.runs.record import TrainingRecord

FOLDER = Path(__file__).parent
FIGURES = "figures/claims"  # below results/
UNTRAINED = 1e-20  # a learning rate below it moves no weight
CONTENTS = {"9cc199493aade0c6e1fea908bb89d1a1": "imagenette"}  # what a folder of images holds


def scale(result: ClaimResult, short: bool = True) -> str:
    """Return data, network and length of a claim's runs; `short` in few words."""
    runs = result.records
    if not runs:
        return "-"
    data = sorted({f"{data_of(run)} at {run.science['data']['crop_px']} px" for run in runs})
    if not short and "imagenette" in map(data_of, runs):
        data.append("photographs of 224 px (larger scales are enlargements)")
    epochs = sorted({run.science["optim"]["epochs"] for run in runs})
    length = f"{_or(epochs)} epoch{'s' * (epochs != [1])}"
    rates = {run.science["optim"]["lr"] for run in runs}
    is_untrained = max(rates) < UNTRAINED
    by_model: dict[str, list[TrainingRecord]] = {}
    for run in runs:
        by_model.setdefault(literal(str(run.choices.get("model"))), []).append(run)
    networks = []
    for model, own in sorted(by_model.items()):
        networks.append(f"{model} of {_or(run.network.depth for run in own)} layers")
        if not short:
            networks[-1] += f" ({_or(run.network.parameters for run in own)} parameters)"
    if short:
        return ", ".join([*data, *networks, "untrained" if is_untrained else length])
    images = ", ".join(sorted({f"{run.images.train:,}" for run in runs}))
    same = [SAME_IMAGES] if any(run.images.test is None for run in runs) else []
    length += f" of {images} images"
    if is_untrained:
        length = f"untrained ({length} at a learning rate of {max(rates):g})"
    return ", ".join([*data, *networks, *_fc_std(runs), length, *same])


def _fc_std(runs: Iterable[TrainingRecord]) -> list[str]:
    """With which std the fully connected layers start, of networks of rows that have several."""
    stds = set()
    for run in runs:
        rows = run.science["model"].get("rows") or ()
        if sum("linear" in row for row in rows) > 1:
            stds.add("small" if run.science["init"].get("fc_std") else "the initialiser's")
    return [f"std of the fully connected layers: {' or '.join(sorted(stds))}"] if stds else []


def data_of(run: TrainingRecord) -> str:
    """The option of data; of a folder, what it holds."""
    return CONTENTS.get(str(run.provenance.data), literal(str(run.choices.get("data"))))


def _or(numbers: Iterable[int]) -> str:
    """The distinct numbers in order, as in `4, 11 or 30`."""
    *first, last = (f"{number:,}" for number in sorted(set(numbers)))
    return f"{', '.join(first)} or {last}" if first else last


def render(name: str, **values: object) -> str:
    """Return the page of a template of this package."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{name}.md.j2").render(values)
