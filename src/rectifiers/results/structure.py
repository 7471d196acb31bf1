"""What the paper shows that is no row of errors: learned slopes, the networks' sizes, errors epoch by epoch."""

from collections.abc import Iterable, Mapping, Sequence

from rectifiers.results.eligibility import PAPERS_SETTING, known
from rectifiers.results.layout import Estimate, Line, Table, estimate
from rectifiers.results.paper import published, table_1_slopes
from rectifiers.runs.record import Record, TrainingRecord

Groups = Mapping[str, Sequence[Record]]

TABLE_1 = {
    "channel-shared": ("table2/prelu_shared", "table1/prelu_shared"),
    "channel-wise": ("table2/prelu", "table1/prelu"),
}
TABLE_3 = {"VGG-19": ("vgg19", "vgg_19"), **{x: (f"model_{x.lower()}", f"model_{x}") for x in "ABC"}}
FIGURES = {
    "Figure 2: the 22-layer model with ReLU": ({"He": "figure2/he", "Xavier (1/n)": "figure2/xavier"}, 3),
    "Figure 3: the 30-layer model with ReLU": ({"He": "figure3/he", "Xavier (1/n)": "figure3/xavier"}, 9),
}


def _of(group: Iterable[Record], *experiments: str) -> list[TrainingRecord]:
    return [r for r in group if isinstance(r, TrainingRecord) and r.choices["experiment"] in experiments]


def slopes(groups: Groups) -> list[Table]:
    """Table 1: the learned slope of every layer, the mean over channels, beside ours."""
    found = []
    for name, group in groups.items():
        columns = {}
        for kind, experiments in TABLE_1.items():
            runs = [r for r in _of(group, *experiments) if r.status == "finished"]
            columns[kind] = (table_1_slopes(kind == "channel-shared"), runs)
        if not any(runs for _, runs in columns.values()) and name != PAPERS_SETTING:
            continue
        lines = []
        for layer in columns["channel-wise"][0]:
            cells: list[str | Estimate] = [layer]
            used = []
            for paper, runs in columns.values():
                own = [r for r in runs if layer in r.slopes]
                ours = [r.slopes[layer].mean for r in own]
                cells += [f"{paper[layer]:.3f}", estimate(ours, 3, absent="not run")]
                used += [r.run for r in own]
            lines.append(Line(cells, used))
        head = ["layer", *(f"{kind}, {whose}" for kind in columns for whose in ("paper", "ours"))]
        own_setting = name == PAPERS_SETTING
        title = "Table 1: learned slopes" if own_setting else f"Table 1 on {name}"
        found.append(Table("slopes", name, title, 2 if own_setting else 3, head, lines))
    return found


def networks() -> Table:
    """Table 3: depth and complexity as printed, and what follows from the rows of `conf/model/`."""
    lines = []
    for label, (option, key) in TABLE_3.items():
        ours, paper = known()["networks"][option], published()["table_3_architectures"][key]
        operations = [f"{paper['complexity']['value']:.2f}", f"{ours['multiply_adds'] / 1e10:.4f}"]
        layers = [str(paper["depth_conv_plus_fc"]["value"]), str(ours["depth"])]
        lines.append(Line([label, *layers, *operations, f"{ours['parameters']:,}"]))
    head = ("", "layers, paper", "ours", "10^10 operations, paper", "10^10 multiply-adds, ours", "parameters, ours")
    return Table("networks", PAPERS_SETTING, "Table 3: the large models at 224 px", 2, head, lines)


def curves(groups: Groups) -> list[Table]:
    """Figures 2 and 3: the error of the centre view after each epoch; the paper plots it and prints no numbers."""
    tables = []
    for title, (arms, epochs) in FIGURES.items():
        for name, group in groups.items():
            runs = {arm: _of(group, e) for arm, e in arms.items()}
            own_setting = name == PAPERS_SETTING
            heading, level = (title, 2) if own_setting else (f"{title.partition(':')[0]} on {name}", 3)
            if not any(runs.values()):
                if own_setting:
                    tables.append(Table("curves", name, heading, level, note="Not run."))
                continue
            lines = []
            for epoch in range(epochs):
                cells: list[str | Estimate] = [str(epoch + 1)]
                used = []
                for found in runs.values():
                    trained = [r for r in found if len(r.history) > epoch]
                    errors = [r.curve("val/top1_error_pct")[epoch] for r in trained]
                    cells.append(estimate(errors))
                    used += [r.run for r in trained]
                lines.append(Line(cells, used))
            head = ("epoch", *(f"{arm}, top-1 error" for arm in arms))
            tables.append(Table("curves", name, heading, level, head, lines))
    return tables
