"""The paper's rows: one definition a run, costs that follow from the networks, each run end to end
at a small size."""

import re
import sys
from pathlib import Path

import pytest

import forkserver
from conftest import CONF, ROOT, compose_config
from rectifiers.models.rows import size
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.training.train import train

EXPERIMENTS = sorted(
    p.relative_to(CONF / "experiment").with_suffix("").as_posix()
    for p in CONF.rglob("experiment/*/*.yaml")
)
SAME_RUN = {f"table1/{name}": f"table2/{name}" for name in ("prelu", "prelu_shared")}
SAME_RUN |= {f"table{n}/a_{name}": f"table4/{name}" for n in (5, 6) for name in ("relu", "prelu")}
SAME_RUN |= {f"table6/{name}": f"table5/{name}" for name in ("b_prelu", "c_prelu")}
ENSEMBLE = "table7/ensemble"
OWN = [name for name in EXPERIMENTS if name not in SAME_RUN and name != ENSEMBLE]


def name(*overrides: str) -> str:
    return run_id(science(compose_config("data.content=abc", *overrides)))


@pytest.mark.process
def test_quoted_experiments_are_the_same_run() -> None:
    for quoting, defining in SAME_RUN.items():
        assert name(f"experiment={quoting}") == name(f"experiment={defining}"), quoting
    assert len({name(f"experiment={own}") for own in OWN}) == len(OWN)


def head(experiment: str) -> str:
    return (CONF / "experiment" / f"{experiment}.yaml").read_text().partition("defaults:")[0]


@pytest.mark.process
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_commands_of_a_head_compose(experiment: str) -> None:
    commands = re.findall(r"(?:train\.py|train\.sbatch) (.*?)(?: {3,}.*)?\n", head(experiment))
    assert len(commands) == 2
    for command in commands:
        overrides = command.replace("<ImageNet>", ".").split()
        assert overrides[0] == f"experiment={experiment}"
        assert compose_config(*overrides).trainer.accelerator == "gpu"


@pytest.mark.parametrize("experiment", OWN)
def test_cost_of_a_head_follows_from_its_network(experiment: str) -> None:
    text = " ".join(head(experiment).replace("\n#", " ").split())
    printed = re.search(r"Cost: ([\d,]+) multiply-adds an image, .*? (\d+) epochs of", text)
    assert printed is not None
    config = compose_config(f"experiment={experiment}")
    layers, px = config.model.layers(1000), config.data.crop_px
    cost = size(layers, channels=3, input_px=px)["multiply_adds"]
    assert int(printed[1].replace(",", "")) == cost
    assert int(printed[2]) == config.trainer.max_epochs


@pytest.mark.process
@pytest.mark.parametrize("experiment", OWN)
def test_every_experiment_runs_at_smoke_size(experiment: str, tmp_path: Path) -> None:
    folders = (f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}")
    options = ("debug=smoke", "threads=1", "logger=none")
    config = compose_config(f"experiment={experiment}", *options, *folders)
    outcome = train(config, {"experiment": experiment, "debug": "smoke"})
    assert records.load(outcome.path).status == "finished"
    assert set(outcome.record.protocols) == set(config.evaluation.protocols)
    assert all(result.num_images == 24 for result in outcome.record.protocols.values())


@pytest.mark.process
def test_ensemble_trains_what_it_lacks(tmp_path: Path) -> None:
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
