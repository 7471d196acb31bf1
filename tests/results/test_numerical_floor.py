"""How far rounding alone moves a result, and what it prevents."""

import csv
import subprocess
from pathlib import Path

import pytest
from scipy import stats

from conftest import ROOT, compose_config, load_script
from made_up import SCIENCE, diverged
from rectifiers.results.numerical_floor import DIVERGED, FILE, NumericalFloor, load_floor
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science

TABLE = """data,seed,variant,run,code,machine,center_error_pct,ten_view_error_pct,train_loss
small,0,a,0,0,m,2.0,,0.1
small,0,b,0,0,m,3.0,,0.1
small,1,a,0,0,m,6.5,,0.1
small,1,b,0,0,m,6.5,,0.1
small,1,c,0,0,m,6.5,,0.1
large,0,a,1,0,m,2.0,1.0,0.1
large,0,b,1,0,m,2.2,1.3,0.1
large,0,c,1,0,m,2.1,1.2,0.1
"""


@pytest.fixture
def floor(tmp_path: Path) -> NumericalFloor:
    (tmp_path / FILE).write_text(TABLE)
    found = load_floor(tmp_path)
    assert found is not None
    return found


def test_the_floor_of_a_paired_mean_is_students_half_width_of_the_spread_on_its_data(
    floor: NumericalFloor,
) -> None:
    def half(sd: float, degrees: int, n: int) -> float:
        return stats.t.ppf(0.975, degrees) * sd * (2 / n) ** 0.5

    within_seeds = (
        0.5 / 3
    ) ** 0.5  # squares of seed 0 over the degrees of both; the distance of the seeds is none
    assert floor.half_width("small", "center", 10) == pytest.approx(half(within_seeds, 3, 10))
    assert floor.half_width("large", "ten_view", 5) == pytest.approx(
        half(stats.tstd([1.0, 1.3, 1.2]), 2, 5)
    )
    assert floor.half_width("small", "center", 10, arms=1) == pytest.approx(
        floor.half_width("small", "center", 20)
    )


def test_what_was_not_measured_takes_the_widest_of_what_was(floor: NumericalFloor) -> None:
    assert floor.half_width("large", "dense", 10) == floor.half_width("large", "ten_view", 10)
    assert floor.half_width("other", "ten_view", 10) == floor.half_width("large", "ten_view", 10)
    assert floor.half_width("other", "center", 10) == floor.half_width("small", "center", 10)
    assert floor.half_width("other", "dense", 10) == floor.half_width("small", "center", 10)


def test_the_floors_source_is_the_data_that_gave_the_widest(floor: NumericalFloor) -> None:
    assert [floor.source(data, "center") for data in ("small", "large", "other")] == [
        "small",
        "large",
        "small",
    ]
    assert floor.source("other", "ten_view") == "large"


def test_the_floor_is_said_with_its_numbers_and_is_none_where_it_was_not_measured(
    floor: NumericalFloor, tmp_path: Path
) -> None:
    assert "One configuration on small, run 5 times with 2 seeds" in str(floor)
    assert "of 0.41 points by `center`: where all runs train, rounding" in str(floor)
    assert "of 0.10 points by `center` and 0.15 points by `ten_view`" in str(floor)
    assert load_floor(tmp_path / "elsewhere") is None


def test_runs_that_diverged_are_counted_beside_the_spread_and_are_not_in_it(
    tmp_path: Path, floor: NumericalFloor
) -> None:
    (tmp_path / FILE).write_text(
        TABLE
        + "small,0,c,0,0,m,,,diverged\nlarge,0,d,1,0,m,,,diverged\nlarge,0,e,1,0,m,,,diverged\n"
    )
    found = load_floor(tmp_path)
    assert found is not None
    assert found.spreads == floor.spreads
    assert "`center`). 1 more diverged, at a rate where others of its seed trained." in str(found)
    assert "`center`). 2 more diverged, at a rate where others of their seed trained." in str(found)
    assert "diverged" not in str(floor)


def test_a_variant_that_diverged_is_finished_and_one_without_a_record_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, variant = load_script("numerical_floor"), ("native", 1, True, True)
    ended = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(subprocess.CalledProcessError):
        script.train("digits8", 3, variant, tmp_path, None)

    def diverge(*_: object, **__: object) -> subprocess.CompletedProcess:
        for name, fused in (
            ("one", True),
            ("other", False),
        ):  # two runs that diverge did not go one way
            folder = script.folder_of("digits8", ("native", 1, True, fused), tmp_path) / name
            folder.mkdir(parents=True)
            lost = diverged(science=SCIENCE | {"seed": 3})
            records.write(folder / "record.json", lost)
        return ended

    monkeypatch.setattr(script.subprocess, "run", diverge)
    script.train("digits8", 3, variant, tmp_path, None)
    rows = script.rows("digits8", tmp_path)
    assert [(row["seed"], row["center_error_pct"], row["train_loss"]) for row in rows] == [
        ("3", "", "diverged")
    ] * 2


def test_the_documents_say_the_floor_that_was_measured() -> None:
    measured = load_floor(ROOT / "results")
    for name in ("docs/explanation/runs.md", "results/CLAIMS.md", "results/TABLES.md"):
        assert str(measured) in " ".join((ROOT / name).read_text().split()), name


def test_every_measured_variant_is_of_one_configuration_of_its_data_and_rounds_otherwise() -> None:
    measured = list(csv.DictReader((ROOT / "results" / FILE).open()))
    runs = {
        "digits8": ("experiment=claim/learned_slope", "activation=prelu"),
        "digits": ("experiment=table2/prelu", "data=digits"),
        "cifar10": ("experiment=claim/cifar_table2", "activation=prelu", "optim.lr=0.02"),
    }
    assert "digits8" in {row["data"] for row in measured} <= set(runs)
    for data, seed in {(row["data"], row["seed"]) for row in measured}:
        rows = [row for row in measured if (row["data"], row["seed"]) == (data, seed)]
        assert {row["run"] for row in rows} == {
            run_id(science(compose_config(*runs[data], f"seed={seed}")))
        }
        assert len({row["variant"] for row in rows}) == len(rows) >= 2, data
        trained = [row["train_loss"] for row in rows if row["train_loss"] != DIVERGED]
        assert len(set(trained)) == len(trained) >= 2, data
