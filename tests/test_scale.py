"""The exact figures of docs/scale.md follow from the network."""

from conftest import ROOT, compose_config
from rectifiers.models.spec import expand, trace


def test_the_figures_of_the_scale_document_follow_from_model_c() -> None:
    text = (ROOT / "docs" / "scale.md").read_text()
    config = compose_config("experiment=table5/c_prelu")
    shapes = trace(expand(config["model"]["rows"], width=1, classes=1000), channels=3, input_px=224)
    macs = sum(shape.multiply_adds for shape in shapes)
    parameters = sum(shape.parameters for shape in shapes)
    fc1 = next(shape.parameters for shape in shapes if shape.row.name == "fc1")
    convs = [shape for shape in shapes if shape.row.kind == "conv"]
    maps = {kind: sum(s.channels * s.side**2 for s in shapes if s.row.kind == kind) for kind in ("conv", "max_pool")}
    saved = 4 * (2 * maps["conv"] + maps["max_pool"])
    step = {gpus: 128 * 6 * macs / (gpus * 20e12) for gpus in (1, 8, 64)}
    batch, epochs = config["optim"]["global_batch"], config["optim"]["epochs"]
    ring = 2 * 7 / 8 * 4 * parameters
    hours = {1: step[1], 8: step[8] + ring / 200e9, 64: step[64] + ring / 12.5e9}
    figures = [
        f"{macs:,}",
        f"{6 * macs:.2e}".replace("e+", "e"),
        f"{parameters:,}, of which fc1 {fc1:,} ({fc1 / parameters:.0%})".replace("%", " %"),
        f"{saved / 1e6:.0f} MB",
        f"{epochs} of 1,281,167 images, {1281167 // batch:,} steps each",
        f"| {step[1]:.2f} s | {step[8]:.3f} s | {step[64]:.3f} s |",
        f"{ring / 1e9:.1f} GB, {ring / 200e9:.3f} s | {ring / 1e9:.1f} GB a node, {ring / 12.5e9:.3f} s |",
        " | ".join(f"{epochs * (1281167 // batch) * seconds / 3600:.0f} h" for seconds in hours.values()),
        f"4.0 + {128 * saved / 1e9:.1f} GB | 4.0 + {16 * saved / 1e9:.1f} GB | 4.0 + {2 * saved / 1e9:.1f} GB",
        f"({sum(shape.parameters for shape in convs) / 1e6:.0f} million parameters here)",
    ]
    assert [figure for figure in figures if figure not in text] == []
    assert batch == 128
    assert f"{12 * parameters / 1e9:.1f}" == "4.0"
