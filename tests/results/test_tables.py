"""Tables from records made up so that every number is known."""

import functools
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, compose_config
from made_up import altered, diverged, ensemble, epoch, result, training
from made_up import errors as counts
from rectifiers.claims.archive import files, read
from rectifiers.claims.claims import claims
from rectifiers.claims.documents import conclusions
from rectifiers.claims.judge import answer
from rectifiers.results.frame import exclusion_reason
from rectifiers.results.paper import published, table_1_slopes
from rectifiers.results.tables import document, load, render_markdown
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import science
from rectifiers.runs.record import TrainingRecord
from refusals import refused


@functools.cache
def composed(experiment: str, data: str) -> RunConfig:
    """What an experiment is on its own data, or on digits."""
    on = () if data == "imagenet" else (f"data={data}",)
    return compose_config(
        f"experiment={experiment}", "evaluation=calibration", "data.protocol=paper", *on
    )


def record(
    experiment: str, seed: int, error: float, *, data: str = "imagenet", protocol: str = "ten_view"
) -> Any:
    """A run whose first images are correct; its top-5 error is half of its top-1 error."""
    config = composed(experiment, data)
    num_images, train_images = (50_000, 1_281_167) if data == "imagenet" else (1000, 100)
    wrong = round(num_images * error / 100)
    settings = config.evaluation.protocols[protocol].as_dict()
    tested = result(num_images - wrong, num_images, num_images - wrong // 2, settings=settings)
    return training(
        science={**science(config), "seed": seed},
        choices={"experiment": experiment, "debug": None, "data": data},
        protocols={protocol: tested},
        images={"train": train_images, "val": num_images, "test": None},
    )


def lost(experiment: str, seed: int, data: str) -> TrainingRecord:
    """A run that diverged."""
    whole = record(experiment, seed, 0, data=data)
    parts = whole.model_dump(include={"science", "choices", "images"})
    return diverged(**parts)


def rendered(*records: Any) -> str:
    return render_markdown(document(records))


def row(document: str, start: str) -> str:
    return next(line for line in document.splitlines() if line.startswith(f"| {start}"))


def test_a_row_compares_our_error_with_the_papers() -> None:
    errors = (33.0, 34.0, 35.0)  # mean 34, std 1, t = 4.303: +- 2.48
    text = rendered(*(record("table2/relu", i, e) for i, e in enumerate(errors)))
    ours = "| ReLU, top-1 | ten_view | 33.82 | 34.00 (31.52 to 36.48, n = 3) | +0.18 |"
    assert row(text, "ReLU, top-1") == ours
    assert row(text, "PReLU, channel-wise, top-1").endswith("| ten_view | 32.64 | - | - |")
    assert "on imagenet" not in text


@pytest.mark.parametrize(
    ("data", "errors"),
    [
        ("imagenet", ("25.60 (25.60 to 25.60, n = 2) | -0.65 |", "48.00 (48.00 to 48.00")),
        ("digits", ("3.60 (3.60 to 3.60, n = 2) at 36 px |", "6.80 (6.80 to 6.80, n = 2) at 68 ")),
    ],
)
def test_scale_of_dense_testing_has_a_row(data: str, errors: tuple[str, str]) -> None:
    run = record("table6/a_relu", 0, 24.0, data=data, protocol="dense_multi_scale")
    tested = run.protocols["dense_multi_scale"]
    n = tested.num_images
    by_scale = {str(px): counts(n - n * px // 1000, n, n) for px in tested.settings["scales_px"]}
    run = altered(run, {"protocols.dense_multi_scale.by_scale": by_scale})
    text = rendered(run, altered(run, {"choices.experiment": "table4/relu"}))
    assert f"| 26.25 | {errors[0]}" in row(text, "ReLU, 256, top-1")
    assert f"| 25.46 | {errors[1]}" in row(text, "ReLU, 480, top-1")
    whole = row(text, "ReLU, multi-scale, top-1")
    end = " -0.02 |" * (data != "digits")
    assert whole.endswith("| 24.02 | 24.00 (24.00 to 24.00, n = 2) |" + end)


@pytest.mark.parametrize("data", ["imagenet", "digits"])
def test_arms_are_compared_by_seed(data: str) -> None:
    found = [record("table2/relu", s, 50 + 10 * s, data=data) for s in (0, 1, 2)]
    found += [record("table2/prelu", s, 49 + 10 * s, data=data) for s in (1, 2)]
    other = record("table2/prelu", 0, 90, data=data)
    found.append(altered(other, {"provenance.data": "other images"}))
    text = rendered(*(altered(each, {"science.trainer.max_epochs": 9}) for each in found))
    own = row(text, "PReLU, channel-wise minus ReLU | ten_view")
    assert "| -1.00 (-1.00 to -1.00, n = 2) |" in own  # the seeds' own spread is taken out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("science.trainer.max_epochs", 1),
        ("science.model.width", 0.5),
        ("science.data.crop_px", 192),
        ("images.train", 1000),
        ("protocols.ten_view", result(450, 500)),
    ],
)
def test_smaller_runs_are_not_compared_with_the_paper(key: str, value: Any) -> None:
    whole = [record("table2/relu", s, 10.0) for s in (0, 1)]
    same = {"protocols.ten_view.settings": whole[0].protocols["ten_view"].settings}
    smaller = [altered(each, {key: value} | same) for each in whole]
    assert [exclusion_reason(each) for each in smaller] == [None, None]
    text = rendered(*smaller)
    assert row(text, "ReLU, top-1").endswith("| 33.82 | 10.00 (10.00 to 10.00, n = 2) |")
    assert "| difference |" not in text


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("choices.experiment", None, "of no experiment"),
        ("choices.experiment", "table9/x", "its experiment table9/x is not known"),
        ("choices.debug", "smoke", "debug=smoke measures nothing"),
        ("provenance.git_dirty", True, "its code was not committed"),
        ("provenance.git_dirty", None, "its code was not committed"),
        ("provenance.data_pinned", False, "its data were not pinned"),
        ("protocols.ten_view.git_dirty", True, "ten_view was tested by code that was not"),
        ("protocols.ten_view.settings", {"scale_px": 300}, "ten_view has other settings"),
        ("science.optim.lr", 1.0, "departs from table2/relu in more than data, size and length"),
        ("science.activation", {"_target_": "torch.nn.ELU"}, "departs from table2/relu"),
        ("science.trainer.precision", "bf16-mixed", "departs from table2/relu"),
    ],
)
def test_what_does_not_belong_says_why(key: str, value: Any, reason: str, tmp_path: Path) -> None:
    whole = record("table2/relu", 0, 30.0)
    assert exclusion_reason(whole) is None
    other = altered(whole, {key: value})
    assert reason in str(exclusion_reason(other))
    records.write(tmp_path / "a.json", whole)
    records.write(tmp_path / "b.json", other)
    assert load(tmp_path) == [whole]


def test_two_records_of_one_seed_are_refused(tmp_path: Path) -> None:
    one = record("table2/relu", 0, 30.0, data="digits")
    other = altered(one, {"science.scheduler.patience": 99})
    records.write(tmp_path / "a.json", one)
    records.write(tmp_path / "b.json", other)
    with refused(r"two records of table2/relu on .* with.*remove one"):
        load(tmp_path)


@pytest.mark.parametrize("data", ["imagenet", "digits"])
def test_diverged_runs_are_counted_and_not_averaged(data: str) -> None:
    gone, other = lost("table2/relu", 1, data), record("table2/prelu", 0, 9.0, data=data)
    text = rendered(record("table2/relu", 0, 10.0, data=data), gone, other)
    end = " -23.82 |" * (data == "imagenet")
    assert row(text, "ReLU, top-1").endswith(f"| 33.82 | 10.00 (n = 1) (1 diverged) |{end}")
    alone = row(rendered(gone), "ReLU, top-1")
    assert alone.endswith("| 33.82 | (1 diverged) |" + " - |" * (data == "imagenet"))


@pytest.mark.parametrize("data", ["imagenet", "imagenette"])
def test_only_runs_on_imagenet_count_as_such(data: str) -> None:
    run = altered(record("table2/relu", 0, 30.0, data=data), {"science.trainer.max_epochs": 1})
    table = rendered(run).partition("## Table 2")[2].partition("## Table 3")[0]
    assert ("Not run on ImageNet." in table) == (data != "imagenet")


def test_protocols_share_no_table() -> None:
    papers = [record("table2/relu", s, 30.0, data="digits") for s in (0, 1)]
    results = {"ten_view": papers[0].protocols["ten_view"].model_dump() | {"split": "test"}}
    images = {"train": 80, "val": 20, "test": 1000}
    changes = {"science.data.protocol": "held_out", "images": images, "protocols": results}
    held_out = [altered(each, changes) for each in papers]
    assert [exclusion_reason(each) for each in held_out] == [None, None]
    text = rendered(*papers, *held_out)
    for size in ("100 images, chosen and tested on the same images", "80 images"):
        setting = f"width 0.25, 32 px, 75 epochs (0 steps) of {size}"
        assert f"## Protocols and their cost on digits ({setting})" in text
    assert "| ours, digits 1 | ours, digits 2 |" in text
    assert "n = 4" not in text


def test_large_models_of_a_claim_share_a_column() -> None:
    a = record("table6/a_relu", 0, 24.0, data="imagenette", protocol="dense_multi_scale")
    rate = {"science.optim.lr": 0.02, "choices.model": "model_a"}
    names = {"choices.model": "vgg19", "choices.experiment": "imagenette_models/vgg"}
    text = rendered(altered(a, rate), altered(a, rate | names))
    table = text.partition("## Table 6")[2]
    assert row(table, "A, ReLU, top-1").endswith("| 24.02 | 24.00 (n = 1) |")
    assert row(table, "VGG").endswith("| 24.40 | 24.00 (n = 1) |")
    assert "Ours on imagenette: each arm at its own rate, width" in table


def test_fc_std_is_part_of_the_setting() -> None:
    small = record("table2/relu", 0, 30.0, data="digits")
    text = rendered(small, altered(small, {"science.init.fc_std": None}))
    assert text.count("images, large fc std, chosen") == text.count("images, chosen")


def test_every_table_has_a_conclusion() -> None:
    texts = conclusions([answer(claim, []) for claim in claims()])
    parts = [part for part in document([], texts) if part.level == 2]
    assert [part.title for part in parts] == list(texts)
    text = render_markdown(parts)
    assert "**Ours:** Not judged yet: not run ([imagenette_model_a]" in text
    assert text.count("**Ours:** No claim tests this.") == 1
    assert "**Ours:** The rows of conf/model/ have the paper's depths" in text


def test_slopes_sizes_and_curves_stand_beside_the_papers() -> None:
    slopes = {"conv1": {"mean": 0.5, "std": 0.1, "min": 0.0, "max": 1.0, "channels": 64}}
    run = altered(record("table2/prelu", 0, 30.0), {"slopes": slopes})
    he, xavier = record("figure3/he", 0, 80.0), lost("figure3/xavier", 0, "imagenet")
    rows = [epoch(i + 1, **{"val/top1_error_pct": max(0.0, 99 - 4 * i)}) for i in range(he.epochs)]
    he = altered(he, {"history": rows})
    text = rendered(run, he, xavier)
    assert row(text, "conv1 |") == "| conv1 | 0.681 |"
    assert "| conv1 | 0.596 | 0.500 (n = 1) |" in text
    assert row(text, "C | 22") == "| C | 22 | 22 | 5.30 | 5.3463 | 330,603,368 |"
    assert "## Figure 2: the 22-layer model with ReLU\n\nNot run on ImageNet." in text
    assert row(text.partition("## Figure 3")[2], "2 |") == "| 2 | 95.00 (n = 1) | - |"


def test_an_ensemble_has_its_row() -> None:
    names, protocol = ("table6/a_relu", "table6/a_prelu"), "dense_multi_scale"
    parts = [record(name, 0, 24.0, protocol=protocol) for name in names]
    choices = {"experiment": "table7/ensemble", "debug": None, "data": "imagenet"}
    whole = ensemble(*parts, choices=choices)
    assert exclusion_reason(whole) is None
    assert row(rendered(whole), "six models").endswith(f"| {protocol} | - | 24.00 (n = 1) | - |")
    assert "| 4.94 | 12.00 (n = 1) | - |" in rendered(whole)


def test_run_of_a_claim_is_in_no_table() -> None:
    (path,) = files(ROOT / "results" / "claims", "signal")
    found = read(path)[0]
    assert exclusion_reason(found) == "it is of a claim"
    as_group = {"choices.experiment": None, "choices.claim": "signal"}
    assert exclusion_reason(altered(found, as_group)) == "it is of a claim"


def test_every_number_names_its_sources() -> None:
    paper = dict(published())
    known = paper.pop("sources").keys()
    for table in paper.values():
        assert all(entry["source"] and set(entry["source"]) <= known for entry in table.values())


def test_table_1_has_thirteen_slopes_a_column() -> None:
    shared, wise = table_1_slopes(shared=True), table_1_slopes(shared=False)
    assert len(shared) == len(wise) == 13
    assert (shared["conv1"], wise["conv1"], wise["fc2"]) == (0.681, 0.596, 0.075)
