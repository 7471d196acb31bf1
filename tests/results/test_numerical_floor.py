"""How far rounding alone moves a result."""

import csv
from pathlib import Path

from scipy import stats

from conftest import ROOT, compose_config, load_script
from made_up import SCIENCE, diverged, training
from rectifiers.results.numerical_floor import DIVERGED, FILE, NETWORKS, rounding_table
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science

TABLE = """data,seed,variant,run,code,machine,center_error_pct,ten_view_error_pct,train_loss
digits8,0,a,0,0,m,2.0,,0.1
digits8,0,b,0,0,m,3.0,,0.1
digits8,1,a,0,0,m,6.5,,0.1
digits8,1,b,0,0,m,6.5,,0.1
digits8,1,c,0,0,m,6.5,,0.1
cifar10,0,a,1,0,m,2.0,1.0,0.1
cifar10,0,b,1,0,m,2.2,1.3,0.1
cifar10,0,c,1,0,m,2.1,1.2,0.1
cifar10,0,d,1,0,m,,,diverged
"""


def test_table_has_the_spread_within_seeds_by_data_and_protocol(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(TABLE)
    _, _, *lines = rounding_table(tmp_path).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    within_seeds = (0.5 / 3) ** 0.5  # the distance of the two seeds does not count
    assert [row[1:] for row in rows] == [
        ["5", "2", f"{within_seeds:.2f}", "0"],
        ["3", "1", f"{stats.tstd([2.0, 2.2, 2.1]):.2f}", "1"],
        ["3", "1", f"{stats.tstd([1.0, 1.3, 1.2]):.2f}", "1"],
    ]


def test_diverged_variants_are_kept_and_equal_losses_are_one_row(tmp_path: Path) -> None:
    script = load_script("numerical_floor")
    science = SCIENCE | {"seed": 3}
    for threads, fused, made in (
        (1, True, diverged(science=science)),
        (1, False, diverged(science=science)),
        (2, True, training(science=science)),
        (2, False, training(science=science)),
    ):
        folder = script.folder_of("digits8", ("native", threads, True, fused), tmp_path)
        records.write(folder / "run" / "record.json", made)
    rows = script.rows("digits8", tmp_path)
    assert [row["variant"].split(", ", 1)[1] for row in rows] == [
        "1 thread, channels-last, fused",
        "1 thread, channels-last, foreach",
        "2 threads, channels-last, fused",
    ]
    assert [row["train_loss"] == DIVERGED for row in rows] == [True, True, False]
    assert {(row["seed"], row["center_error_pct"]) for row in rows[:2]} == {("3", "")}


def test_every_variant_has_one_configuration_and_rounds_differently() -> None:
    measured = list(csv.DictReader((ROOT / "results" / FILE).open()))
    runs = {
        "digits8": ("experiment=claim/learned_slope", "activation=prelu"),
        "digits": ("experiment=table2/prelu", "data=digits"),
        "cifar10": ("experiment=claim/cifar_table2", "activation=prelu", "optim.lr=0.02"),
    }
    assert "digits8" in {row["data"] for row in measured} <= set(runs) == set(NETWORKS)
    for data, seed in {(row["data"], row["seed"]) for row in measured}:
        rows = [row for row in measured if (row["data"], row["seed"]) == (data, seed)]
        assert {row["run"] for row in rows} == {
            run_id(science(compose_config(*runs[data], f"seed={seed}")))
        }
        assert len({row["variant"] for row in rows}) == len(rows) >= 2, data
        trained = [row["train_loss"] for row in rows if row["train_loss"] != DIVERGED]
        assert len(set(trained)) == len(trained) >= 2, data
