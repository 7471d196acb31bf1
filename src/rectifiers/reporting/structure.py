"""What the paper shows that is no row of errors: learned slopes, the networks' sizes, errors epoch by epoch."""

from collections.abc import Mapping, Sequence

from rectifiers.reporting.belonging import PAPERS_SETTING, Record, known
from rectifiers.reporting.layout import interval, markdown
from rectifiers.reporting.paper import published, table_1_slopes
from rectifiers.reporting.statistics import mean_of

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


def slopes(groups: Groups) -> str:
    """Table 1: the learned slope of every layer, the mean over channels, beside ours."""
    parts = []
    for name, group in groups.items():
        columns = {}
        for kind, experiments in TABLE_1.items():
            runs = [r for r in group if r["choices"]["experiment"] in experiments and r["status"] == "finished"]
            columns[kind] = (table_1_slopes(kind == "channel-shared"), runs)
        if not any(runs for _, runs in columns.values()) and name != PAPERS_SETTING:
            continue
        lines = []
        for layer in columns["channel-wise"][0]:
            line = [layer]
            for paper, runs in columns.values():
                ours = [r["slopes"][layer]["mean"] for r in runs if layer in r["slopes"]]
                line += [f"{paper[layer]:.3f}", interval(mean_of(ours), 3) if ours else "not run"]
            lines.append(line)
        head = ["layer", *(f"{kind}, {whose}" for kind in columns for whose in ("paper", "ours"))]
        title = "## Table 1: learned slopes" if name == PAPERS_SETTING else f"### Table 1 on {name}"
        parts.append(f"{title}\n\n{markdown(head, lines)}")
    return "\n".join(parts)


def networks() -> str:
    """Table 3: depth and complexity as printed, and what follows from the rows of `conf/model/`."""
    lines = []
    for label, (option, key) in TABLE_3.items():
        ours, paper = known()["networks"][option], published()["table_3_architectures"][key]
        operations = [f"{paper['complexity']['value']:.2f}", f"{ours['multiply_adds'] / 1e10:.4f}"]
        layers = [str(paper["depth_conv_plus_fc"]["value"]), str(ours["depth"])]
        lines.append([label, *layers, *operations, f"{ours['parameters']:,}"])
    head = ("", "layers, paper", "ours", "10^10 operations, paper", "10^10 multiply-adds, ours", "parameters, ours")
    return f"## Table 3: the large models at 224 px\n\n{markdown(head, lines)}"


def curves(groups: Groups) -> str:
    """Figures 2 and 3: the error of the centre view after each epoch; the paper plots it and prints no numbers."""
    parts = []
    for title, (arms, epochs) in FIGURES.items():
        for name, group in groups.items():
            runs = {arm: [r for r in group if r["choices"]["experiment"] == e] for arm, e in arms.items()}
            heading = f"## {title}" if name == PAPERS_SETTING else f"### {title.partition(':')[0]} on {name}"
            if not any(runs.values()):
                if name == PAPERS_SETTING:
                    parts.append(f"{heading}\n\nNot run.\n")
                continue
            lines = []
            for epoch in range(epochs):
                line = [str(epoch + 1)]
                for found in runs.values():
                    errors = [r["history"][epoch]["val/top1_error_pct"] for r in found if len(r["history"]) > epoch]
                    line.append(interval(mean_of(errors)) if errors else "-")
                lines.append(line)
            parts.append(f"{heading}\n\n{markdown(('epoch', *(f'{arm}, top-1 error' for arm in arms)), lines)}")
    return "\n".join(parts)
