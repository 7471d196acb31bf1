"""The figures of docs/results/scale.md follow from the networks and from what it assumes."""

import pytest

from conftest import ROOT, compose_config
from rectifiers.nn.networks.rows import expand, trace

STEPS = 1281167 // 128
RATE, FAST, WITHIN, BETWEEN = 20e12, 300e12, 200e9, 12.5e9  # assumed
DECODING = 746e-6  # measured


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / "docs" / "results" / "scale.md").read_text()


@pytest.fixture(params=["table5/a_prelu", "table5/c_prelu"])
def counts(request: pytest.FixtureRequest) -> dict[str, int]:
    config = compose_config(f"experiment={request.param}")
    assert (config.data.batch_size, config.trainer.max_epochs) == (128, 80)
    shapes = trace(expand(config.model.rows, width=1, classes=1000), channels=3, input_px=224)
    maps = {
        kind: sum(s.channels * s.side**2 for s in shapes if s.row.kind == kind)
        for kind in ("conv", "max_pool")
    }
    return {
        "macs": sum(shape.multiply_adds for shape in shapes),
        "parameters": sum(shape.parameters for shape in shapes),
        "fc1": next(shape.parameters for shape in shapes if shape.row.name == "fc1"),
        "convs": sum(shape.parameters for shape in shapes if shape.row.kind == "conv"),
        "kept": 4 * maps["conv"] + 12 * maps["max_pool"],  # a place is eight bytes
        "kept_in_bfloat16": 2 * maps["conv"] + 10 * maps["max_pool"],
    }


def step_s(
    counts: dict[str, int],
    machines: int,
    gpus: int,
    between: float = BETWEEN,
    *,
    rate: float = RATE,
    batch: int = 128,
) -> tuple[float, float]:
    """Return (computing, wire)."""
    wire = 0.0 if gpus == 1 else 2 * 7 / 8 * 4 * counts["parameters"] / WITHIN
    wire += 2 * (machines - 1) / machines * 4 * counts["parameters"] / between
    return batch * 6 * counts["macs"] / (gpus * rate), wire


def test_what_is_said_of_a_network_is_so(text: str, counts: dict[str, int]) -> None:
    share = f"{counts['fc1'] / counts['parameters']:.0%}".replace("%", " %")
    operations = f"{6 * counts['macs']:.2e}".replace("e+", "e")
    figures = (
        f"{counts['macs']:,}",
        operations,
        f"{counts['parameters']:,}",
        f"{counts['fc1']:,} ({share})",
        f"{counts['kept'] / 1e6:.0f} MB",
        f"80 of {STEPS:,} steps",
    )
    assert [figure for figure in figures if f"| {figure} |" not in text] == []
    assert (
        str(round(counts["convs"] / 1e6))
        in text.partition("reduced the conv layers alone (")[2][:10]
    )


def test_every_line_of_the_tables_is_what_the_model_says(text: str, counts: dict[str, int]) -> None:
    lines = []
    for machines, gpus in ((1, 1), (1, 8), (2, 16), (4, 32), (8, 64), (16, 128)):
        computing, wire = step_s(counts, machines, gpus)
        best, worst = computing / 3 + max(2 * computing / 3, wire), computing + wire
        low, high = (seconds * 80 * STEPS / 3600 for seconds in (best, worst))
        lines.append(
            f"| {machines} ({gpus}) | {128 // gpus} | {computing:.3f} s | {wire:.3f} s | "
            f"{best:.3f} to {worst:.3f} s | "
            f"{low:.0f} to {high:.0f} h | {12 * counts['parameters'] / 1e9:.1f} + "
            f"{128 / gpus * counts['kept'] / 1e9:.1f} GB |"
        )
    assert [line for line in lines if line not in text] == []


def test_every_line_in_bfloat16_is_what_the_model_says(text: str, counts: dict[str, int]) -> None:
    model, lines = "A" if counts["parameters"] < 2e8 else "C", []
    for machines, gpus in ((1, 1), (1, 8), (2, 16), (8, 64)):
        computing, wire = step_s(counts, machines, gpus, rate=FAST)
        best, worst = computing / 3 + max(2 * computing / 3, wire), computing + wire
        low, high = (seconds * 80 * STEPS / 3600 for seconds in (best, worst))
        lines.append(
            f"| {model} | {machines} ({gpus}) | {computing:.4f} s | {wire:.4f} s | {best:.4f} "
            f"to {worst:.4f} s | "
            f"{low:.1f} to {high:.1f} h | {14 * counts['parameters'] / 1e9:.1f} + "
            f"{128 / gpus * counts['kept_in_bfloat16'] / 1e9:.1f} GB | "
            f"{128 / best / gpus * DECODING:.2f} |"
        )
    assert [line for line in lines if line not in text] == []


@pytest.mark.parametrize(
    ("machines", "gpus", "batch"), [(1, 8, 128), (8, 64, 128), (64, 512, 8192)]
)
def test_the_larger_of_computing_and_wire_is_named(
    text: str, counts: dict[str, int], machines: int, gpus: int, batch: int
) -> None:
    cells = []
    for rate in (RATE, FAST):
        computing, wire = step_s(counts, machines, gpus, rate=rate, batch=batch)
        first = "computing" if computing > wire else "wire"
        cells.append(f"{first}, {max(computing, wire) / min(computing, wire):.1f}")
    (line,) = [
        line
        for line in text.splitlines()
        if line.startswith(f"| {gpus} ({machines}) | {batch:,} |")
    ]
    columns = line.split(" | ")[2:]
    assert [
        cell.strip(" |") for cell in (columns[:2] if counts["parameters"] < 2e8 else columns[2:])
    ] == cells


def best_s(counts: dict[str, int], machines: int, gpus: int) -> float:
    computing, wire = step_s(counts, machines, gpus)
    return computing / 3 + max(2 * computing / 3, wire)


def test_what_is_said_of_more_machines_is_so(text: str, counts: dict[str, int]) -> None:
    numbers = [(1, 8), (2, 16), (4, 32), (8, 64), (16, 128)]
    best = [best_s(counts, *each) for each in numbers]
    worst = [sum(step_s(counts, *each)) for each in numbers]
    assert f"{best[1] / best[0]:.2f}" in text
    assert best[1] == min(best)  # where all overlaps, two machines
    model_a = counts["parameters"] < 2e8
    assert worst[0] == min(worst) if model_a else 0.9 < worst[-1] / worst[1] < 1
    computing, wire = step_s(counts, 8, 64, between=50e9)
    assert wire > computing
    assert f"{wire:.3f}" in text
    assert model_a or min(best) * STEPS // 60 >= 26


@pytest.mark.parametrize("counts", ["table5/c_prelu"], indirect=True)
def test_storage_and_cores_keep_up(text: str, counts: dict[str, int]) -> None:
    images = []
    for machines, gpus in ((1, 1), (1, 8), (8, 64)):
        computing, wire = step_s(counts, machines, gpus)
        images.append(128 / (computing / 3 + max(2 * computing / 3, wire)))
    for row in (
        " | ".join(f"{n:.0f}" for n in images),
        " | ".join(f"{n * 0.115:.0f} MB/s" for n in images),
        " | ".join(f"{n * DECODING:.{2 if n < 100 else 1}f}" for n in images),
    ):
        assert f"| {row} |" in text
