"""How far rounding alone moves a result, and what it prevents."""

import csv
from pathlib import Path

import pytest
from scipy import stats

from conftest import ROOT, compose_config
from rectifiers.results.numerical_floor import FILE, load_floor
from rectifiers.runs.identity import run_id, science

TABLE = """variant,run,code,machine,center_error_pct,ten_view_error_pct,train_loss
a,0,0,m,2.0,1.0,0.1
b,0,0,m,3.0,1.1,0.1
c,0,0,m,2.5,1.2,0.1
d,0,0,m,2.5,1.1,0.1
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text(TABLE)
    return tmp_path


def test_the_floor_of_a_paired_mean_is_students_half_width_of_the_spread(place: Path) -> None:
    floor = load_floor(place)
    assert floor is not None
    sd = stats.tstd([2.0, 3.0, 2.5, 2.5])
    assert floor.half_width("center", 10) == pytest.approx(stats.t.ppf(0.975, 3) * sd * (2 / 10) ** 0.5)
    assert floor.half_width("center", 10, arms=1) == pytest.approx(floor.half_width("center", 20))
    assert floor.half_width("dense", 10) == floor.half_width("center", 10)  # not measured: the larger of the two
    assert floor.half_width("ten_view", 10) < floor.half_width("center", 10)


def test_the_floor_is_said_with_its_numbers_and_is_none_where_it_was_not_measured(place: Path, tmp_path: Path) -> None:
    text = str(load_floor(place))
    assert "made 4 times" in text
    assert "2.00 to 3.00 % by `center` (sd 0.41) and 1.00 to 1.20 % by `ten_view` (sd 0.08)" in text
    assert load_floor(tmp_path / "elsewhere") is None


def test_the_documents_say_the_floor_that_was_measured() -> None:
    measured = load_floor(ROOT / "results")
    for name in ("docs/explanation/runs.md", "results/CLAIMS.md", "results/TABLES.md"):
        assert str(measured) in " ".join((ROOT / name).read_text().split()), name


def test_every_measured_variant_is_of_one_run_and_rounds_otherwise() -> None:
    rows = list(csv.DictReader((ROOT / "results" / FILE).open()))
    assert {row["run"] for row in rows} == {
        run_id(science(compose_config("activation=prelu", "init=he", "data.protocol=paper")))
    }
    for key in ("variant", "train_loss"):
        assert len({row[key] for row in rows}) == len(rows) >= 8
