"""The paper's rows: one definition a run, costs that follow from the networks, each run end to end
at a small size."""

import re
import sys
from pathlib import Path

import pytest

import forkserver
from conftest import CONF, ROOT, compose_config
from rectifiers.nn.networks.rows import expand, trace
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.training.run import train

EXPERIMENTS = sorted(  # claims have tests of their own
    p.relative_to(CONF / "experiment").with_suffix("").as_posix()
    for p in CONF.rglob("experiment/*/*.yaml")
    if p.parent.name != "claim"
)
SAME_RUN = {
    "table1/prelu": "table2/prelu",
    "table1/prelu_shared": "table2/prelu_shared",
    "table5/a_relu": "table4/relu",
    "table5/a_prelu": "table4/prelu",
    "table6/a_relu": "table4/relu",
    "table6/a_prelu": "table4/prelu",
    "table6/b_prelu": "table5/b_prelu",
    "table6/c_prelu": "table5/c_prelu",
}
ENSEMBLE = "table7/ensemble"
OWN = [name for name in EXPERIMENTS if name not in SAME_RUN and name != ENSEMBLE]


def name(*overrides: str) -> str:
    return run_id(science(compose_config("data.content=abc", *overrides)))


@pytest.mark.process
def test_one_definition_of_a_run_serves_all_that_quote_it() -> None:
    for quoting, defining in SAME_RUN.items():
        assert name(f"experiment={quoting}") == name(f"experiment={defining}"), quoting
    assert len({name(f"experiment={own}") for own in OWN}) == len(OWN)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_head_comment_says_command_and_cost(experiment: str) -> None:
    comment = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    assert f"python train.py experiment={experiment} data.root=" in comment
    assert f"sbatch scripts/slurm/train.sbatch experiment={experiment} data.root=" in comment
    config = compose_config(f"experiment={experiment}")
    assert config.model.width == 1
    assert (config.preprocess.scale, config.init.fc_std) == (255, (0.01, 0.01, 0.001))
    if experiment == ENSEMBLE:
        assert set(config.members) < SAME_RUN.keys()
        return
    if experiment in SAME_RUN:
        assert f"The run is that of {SAME_RUN[experiment]}," in comment
        return
    rows = expand(config.model.rows, width=1, classes=1000)
    macs = sum(shape.multiply_adds for shape in trace(rows, channels=3, input_px=224))
    epochs = config.trainer.max_epochs
    assert f"{macs:,} multiply-adds an image" in comment
    assert f"{epochs} epochs of 1,281,167 images" in comment
    said = re.search(r"(\d+) GPU-hours at a sustained 20 TFLOP/s", comment)
    assert said
    assert int(said[1]) == pytest.approx(6 * macs * 1281167 * epochs / 20e12 / 3600, abs=0.5)


@pytest.mark.process
@pytest.mark.parametrize("experiment", OWN)
def test_every_experiment_runs_end_to_end_at_the_smoke_size(
    experiment: str, tmp_path: Path
) -> None:
    config = compose_config(
        f"experiment={experiment}",
        "debug=smoke",
        f"runs_dir={tmp_path}/runs",
        f"cache_dir={tmp_path}",
        "threads=1",
        "logger=none",
    )
    outcome = train(config, {"experiment": experiment, "debug": "smoke"})
    assert records.load(outcome.path).status == "finished"
    assert set(outcome.record.protocols) == set(config.evaluation.protocols)
    assert all(result.num_images == 24 for result in outcome.record.protocols.values())


@pytest.mark.process
def test_the_ensemble_trains_what_it_lacks_and_averages_it(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "train.py",
        f"experiment={ENSEMBLE}",
        "debug=smoke",
        f"runs_dir={tmp_path}/runs",
        f"cache_dir={tmp_path}",
        "threads=1",
        "trainer.max_epochs=1",
        "logger=none",
    ]
    done = forkserver.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    whole = records.load(Path(done.stdout.splitlines()[-1]))
    models = {member.choices["experiment"]: member.choices["model"] for member in whole.members}
    assert models == {
        "table6/a_relu": "model_a",
        "table6/a_prelu": "model_a",
        "table6/b_prelu": "model_b",
        "table6/c_prelu": "model_c",
    }
    assert (whole.choices["experiment"], whole.choices["debug"]) == (ENSEMBLE, "smoke")
    (found,) = whole.protocols.values()
    parts = [records.load(tmp_path / "runs" / m.run / "record.json") for m in whole.members]
    assert found.num_images == 24
    assert found.multiply_adds == sum(
        part.protocols["dense_multi_scale"].multiply_adds for part in parts
    )
    again = forkserver.run(command, cwd=ROOT)
    assert "epoch" not in again.stderr  # nothing is trained twice
    assert again.stdout == done.stdout
