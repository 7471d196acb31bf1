"""What the paper shows that is no row of errors: learned slopes, the networks' sizes, errors epoch
by epoch."""

from collections.abc import Iterable, Mapping, Sequence

from rectifiers.results.eligibility import PAPERS_SETTING, known
from rectifiers.results.layout import Line, Table, estimate
from rectifiers.results.paper import published, table_1_slopes
from rectifiers.runs.record import Record, TrainingRecord

Groups = Mapping[str, Sequence[Record]]

TABLE_1 = {
    "channel-shared": ("table2/prelu_shared", "table1/prelu_shared"),
    "channel-wise": ("table2/prelu", "table1/prelu"),
}
TABLE_3 = {
    "VGG-19": ("vgg19", "vgg_19"),
    **{x: (f"model_{x.lower()}", f"model_{x}") for x in "ABC"},
}
FIGURES = {
    "Figure 2: the 22-layer model with ReLU": (
        {"He": "figure2/he", "Xavier (1/n)": "figure2/xavier"},
        3,
    ),
    "Figure 3: the 30-layer model with ReLU": (
        {"He": "figure3/he", "Xavier (1/n)": "figure3/xavier"},
        9,
    ),
}


def _of(group: Iterable[Record], *experiments: str) -> list[TrainingRecord]:
    return [
        r for r in group if isinstance(r, TrainingRecord) and r.choices["experiment"] in experiments
    ]


def slopes(groups: Groups) -> list[Table]:
    """Table 1: the learned slope of every layer, the mean over channels, beside ours."""
    tables = []
    paper = {kind: table_1_slopes(kind == "channel-shared") for kind in TABLE_1}
    head = ["layer", *(f"{kind}, {whose}" for kind in TABLE_1 for whose in ("paper", "ours"))]
    for name, group in groups.items():
        own_setting = name == PAPERS_SETTING
        finished = [record for record in group if record.status == "finished"]
        runs = {kind: _of(finished, *experiments) for kind, experiments in TABLE_1.items()}
        lines = []
        for layer in paper["channel-wise"] if any(runs.values()) or own_setting else ():
            found = {
                kind: [r for r in of_kind if layer in r.slopes] for kind, of_kind in runs.items()
            }
            means = {
                kind: [r.slopes[layer].mean for r in of_kind] for kind, of_kind in found.items()
            }
            ours = {kind: estimate(values, 3, absent="not run") for kind, values in means.items()}
            cells = [cell for kind in TABLE_1 for cell in (f"{paper[kind][layer]:.3f}", ours[kind])]
            lines.append(
                Line([layer, *cells], [r.run for of_kind in found.values() for r in of_kind])
            )
        title = "Table 1: learned slopes" if own_setting else f"Table 1 on {name}"
        if lines:
            tables.append(Table("slopes", name, title, 2 if own_setting else 3, head, lines))
    return tables


def networks() -> Table:
    """Table 3: depth and complexity as printed, and what follows from the rows of `conf/model/`."""
    lines = []
    for label, (option, key) in TABLE_3.items():
        ours, paper = known()["networks"][option], published()["table_3_architectures"][key]
        operations = [f"{paper['complexity']['value']:.2f}", f"{ours['multiply_adds'] / 1e10:.4f}"]
        layers = [str(paper["depth_conv_plus_fc"]["value"]), str(ours["depth"])]
        lines.append(Line([label, *layers, *operations, f"{ours['parameters']:,}"]))
    head = (
        "",
        "layers, paper",
        "ours",
        "10^10 operations, paper",
        "10^10 multiply-adds, ours",
        "parameters, ours",
    )
    return Table("networks", PAPERS_SETTING, "Table 3: the large models at 224 px", 2, head, lines)


def curves(groups: Groups) -> list[Table]:
    """Figures 2 and 3: the error of the centre view after each epoch; the paper plots it and prints
    no numbers."""
    tables = []
    for title, (arms, epochs) in FIGURES.items():
        figure = title.partition(":")[0].lower().replace(" ", "")
        head = ("epoch", *(f"{arm}, top-1 error" for arm in arms))
        for name, group in groups.items():
            runs = [_of(group, experiment) for experiment in arms.values()]
            own_setting = name == PAPERS_SETTING
            heading, level = (
                (title, 2) if own_setting else (f"{title.partition(':')[0]} on {name}", 3)
            )
            if any(runs):
                lines = [_epoch(epoch, runs) for epoch in range(epochs)]
                tables.append(Table("curves", name, heading, level, head, lines))
            elif own_setting:
                note = (
                    f"Not run. [Claims](CLAIMS.md) with {figure} in their name ask it of "
                    "smaller networks and images."
                )
                tables.append(Table("curves", name, heading, level, note=note))
    return tables


def _epoch(epoch: int, arms: Sequence[Sequence[TrainingRecord]]) -> Line:
    trained = [[run for run in runs if run.epochs > epoch] for runs in arms]
    errors = [
        estimate([run.curve("val/top1_error_pct")[epoch] for run in runs]) for runs in trained
    ]
    return Line([str(epoch + 1), *errors], [run.run for runs in trained for run in runs])
