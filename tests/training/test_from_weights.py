"""`init.from_weights`: a deeper network starts from the layers of a shallower one that fit."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import TINY, compose_config, load_script, weights
from made_up import altered
from processes import finish, record, together
from processes import weights as weights_of
from rectifiers import activations
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.cli.finished import of_run
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id, science
from rectifiers.training.from_weights import fitting, read_weights
from rectifiers.training.train import Outcome, train
from refusals import refused

DEEPER = ("model.depth=4", "trainer.max_epochs=1")
STANDS = ("optim.lr=1e-20", "optim.weight_decay=0")  # the weights of the start are those of the end
LAYERS = ["fc_1", "fc_2", "fc_3", "fc_4", "out"]
MINI = "model=mini data=digits8 activation=prelu evaluation=center logger=none threads=1"


@pytest.fixture(scope="module")
def shallow(tmp_path_factory, fitted: Path) -> Outcome[Any]:
    """A trained network of two hidden layers."""
    places = (f"runs_dir={tmp_path_factory.mktemp('shallow')}", f"cache_dir={fitted}")
    return train(compose_config(*TINY, *places, "trainer.max_epochs=1", "seed=7"), {})


def from_shallow(shallow: Outcome[Any]) -> str:
    return f"init.from_weights={shallow.path.parent}"


def of_network(outcome: Outcome[Any]) -> dict[str, Tensor]:
    state = weights(outcome).items()
    return {n.removeprefix("network."): w for n, w in state if n.startswith("network.")}


def test_layers_that_fit_start_trained(tiny, shallow) -> None:
    deeper = train(tiny(*DEEPER, *STANDS, from_shallow(shallow)), {})
    scratch = train(tiny(*DEEPER, *STANDS), {})
    rules = {entry.layer: entry.rule for entry in deeper.record.init_report}
    assert rules == {name: "he" if name in ("fc_3", "fc_4") else "weights" for name in LAYERS}
    assert "3 of 5 layers start from the weights of run" in deeper.record.warnings[0]
    assert shallow.record.run in deeper.record.warnings[0]
    drawn_too = "head.fc_3, head.fc_3_act, head.fc_4, head.fc_4_act"
    assert deeper.record.warnings[0].endswith(f"as init leaves them: {drawn_too}")
    ours, theirs, drawn = map(of_network, (deeper, shallow, scratch))
    for name, weight in ours.items():
        is_drawn = name.startswith(("head.fc_3", "head.fc_4"))
        start = (drawn if is_drawn else theirs)[name]
        assert torch.allclose(weight, start, atol=1e-15, rtol=0), name
    assert not torch.equal(drawn["head.fc_1.weight"], theirs["head.fc_1.weight"])
    entry = next(entry for entry in deeper.record.init_report if entry.layer == "fc_1")
    assert entry.bias == "weights"
    assert entry.std_drawn == pytest.approx(float(theirs["head.fc_1.weight"].std(correction=0)))


def test_stages_of_maps_grow_with_their_normalisation(tmp_path: Path, fitted: Path) -> None:
    options = (*MINI.split(), "model.norm=batch", "trainer.max_epochs=1", f"cache_dir={fitted}")
    options += (f"runs_dir={tmp_path}/runs", "+trainer.limit_train_batches=2")
    first = train(compose_config(*options), {})
    given = f"init.from_weights={first.record.run}"  # an id, looked up in runs_dir
    deeper = train(compose_config(*options, "model.stage2=6", "model.units=64", given, *STANDS), {})
    drawn = [e.layer for e in deeper.record.init_report if e.rule == "he"]
    assert drawn == ["conv2_5", "conv2_6", "fc1_1", "fc1_2", "fc3"]  # by shape, the last three
    slopes = "trunk.conv3_6_act.weight"
    assert torch.equal(of_network(deeper)[slopes], of_network(first)[slopes])


def test_the_same_weights_make_one_id(tiny, shallow, tmp_path: Path) -> None:
    state = of_network(shallow)
    torch.save(state, tmp_path / "net.pt")
    torch.save({f"module.{name}": weight for name, weight in state.items()}, tmp_path / "ddp.pt")
    state["head.out.bias"] = state["head.out.bias"] + 1
    torch.save(state, tmp_path / "other.pt")

    def id_from(given: object) -> str:
        return train(tiny(*DEEPER, f"init.from_weights={given}"), {}).record.run

    first = id_from(shallow.path.parent)
    assert id_from(shallow.path.with_name("last.ckpt")) == id_from(tmp_path / "net.pt") == first
    assert len({first, id_from(tmp_path / "other.pt"), run_id(science(tiny(*DEEPER)))}) == 3


def test_claims_know_the_run_before_it_is_made(tmp_path: Path, shallow) -> None:
    """Its id has the hash of the weights, so `claims.py` looks for it under that name."""
    asked = (*TINY, *DEEPER, from_shallow(shallow), f"runs_dir={tmp_path}")
    made = train(compose_config(*asked), {}).record.run
    assert load_script("claims").outcome_of(asked)[0] == made


def test_a_test_needs_no_weights_of_before(tiny, tmp_path: Path, shallow) -> None:
    torch.save(of_network(shallow), tmp_path / "net.pt")
    outcome = train(tiny(*DEEPER, f"init.from_weights={tmp_path}/net.pt"), {})
    (tmp_path / "net.pt").unlink()
    folder = str(outcome.path.parent)
    config, choices, _ = of_run(folder, {"evaluation": "center"})
    wider = config.replaced({"evaluation.center.scale_px": 11})
    tested = train(wider, choices).record
    assert tested.run == outcome.record.run
    assert tested.protocols["center"].settings["scale_px"] == 11


@pytest.mark.process
def test_ranks_start_from_the_same_weights(tmp_path: Path, shallow) -> None:
    finish(together(2, tmp_path, *TINY, *DEEPER, *STANDS, from_shallow(shallow)))
    ours, theirs = weights_of(tmp_path), weights(shallow)
    for name in ("network.head.fc_1.weight", "network.head.fc_2_act.weight"):
        assert torch.equal(ours[name], theirs[name])
    rules = [entry.rule for entry in records.load(record(tmp_path)).init_report]
    assert rules == ["weights", "weights", "he", "he", "weights"]


@pytest.fixture
def network() -> Network:
    rows = ({"name": "conv", "conv": 4, "kernel": 3}, {"name": "out", "linear": "classes"})
    layers = expand(rows, width=1, classes=3)
    return Network(layers, activations.prelu, channels=1, input_px=3, norm="batch")


def without(name: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: weight for key, weight in state.items() if key != name}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda state: without("trunk.conv.bias", state), "trunk.conv."),
        (lambda state: state | {"trunk.conv.bias": torch.ones(5)}, "trunk.conv."),
        (lambda state: state | {"head.out.weight": torch.ones(3, 5)}, "head.out."),
        (lambda state: state | {"trunk.conv.weight": torch.ones(4, 1, 3, 3).int()}, "trunk.conv."),
        (lambda state: without("trunk.conv_norm.running_var", state), "trunk.conv_norm."),
    ],
)
def test_no_layer_is_filled_in_part(tiny, network: Network, change, left: str) -> None:
    state = network.state_dict()
    fit = fitting(tiny("init.from_weights=net.pt"), network, change(dict(state)))
    counted = {name for name in state if not name.endswith("num_batches_tracked")}
    assert fit.keys() == {name for name in counted if not name.startswith(left)}


class Code:
    """What a pickle would execute."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("executed"),)


def test_what_is_no_network_gets_one_line(tiny, shallow, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickled.pt").write_bytes(pickle.dumps({"out.weight": Code()}))
    (tmp_path / "text.pt").write_text("no weights")
    torch.save({"numbers": [1, 2]}, tmp_path / "numbers.pt")
    torch.save({"weight": torch.eye(3).to_sparse()}, tmp_path / "sparse.pt")
    torch.save({"weight": torch.full((3, 3), torch.nan)}, tmp_path / "nan.pt")
    torch.save({"weight": torch.full((3, 3), 1e300, dtype=torch.float64)}, tmp_path / "large.pt")
    torch.save(nn.Linear(3, 3).state_dict(), tmp_path / "other.pt")
    lost = tmp_path / "lost" / "record.json"
    lost.parent.mkdir()
    text = (shallow.path.parent / "record.json").read_text()
    lost.write_text(text)  # without its checkpoint
    for given, why in {
        "0123456789ab": "no file, and there is no",
        "n" * 300: "no file, and there is no",
        "pickled.pt": "cannot be read",
        "text.pt": "cannot be read",
        "numbers.pt": "holds no weights by name",
        "sparse.pt": "holds no plain weights",
        "nan.pt": "weight has a number that is not finite",
        "large.pt": "weight has a number that is not finite",
        "other.pt": "no layer of this network fits",
        "lost": "cannot be read",
    }.items():
        config = tiny(*DEEPER).replaced({"init.from_weights": given})
        with refused(why) as caught:
            train(config, {})
        assert str(caught.value).startswith(f"init.from_weights={given}"), caught.value
    assert not (tmp_path / "executed").exists()


def test_a_run_that_diverged_trained_nothing(tiny, tmp_path: Path) -> None:
    diverged = train(tiny("optim.lr=1e6", "activation=relu"), {})
    assert diverged.record.status == "diverged"
    with refused("that run has diverged"):
        train(tiny(*DEEPER, f"init.from_weights={diverged.record.run}"), {})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("init.mode=empirical",), "combined with init.from_weights"),
        (("init=lsuv",), "combined with init.from_weights"),
        (("+init.from_weights_content=abc",), "is not the hash of the weights"),
    ],
)
def test_what_contradicts_is_refused(tiny, shallow, options: tuple[str, ...], why: str) -> None:
    with refused(why):
        train(tiny(*DEEPER, from_shallow(shallow), *options), {})


def test_analyses_look_at_drawn_starts(tiny) -> None:
    config = tiny().replaced({"init.from_weights": "net.pt"})
    with refused(r"^init\.from_weights=net.pt is for train.py"):
        AnalysisSetup(config)


def test_a_hash_alone_trains_nothing(tiny) -> None:
    config = tiny(*DEEPER, "+init.from_weights_content=abc")
    with refused("weights that are not given"):
        train(config, {})
    assert not list(config.runs_dir.glob("*/config.yaml"))


@pytest.mark.parametrize("typed", ["123456789012", "12e456789012"])
def test_ids_that_look_like_numbers_need_a_folder(typed: str) -> None:
    with refused("was read as a number; give the folder"):
        compose_config(f"init.from_weights={typed}")
    assert str(compose_config(f"init.from_weights=runs/{typed}").init.from_weights).endswith(typed)


def test_the_hash_is_of_bits_and_names(tiny, tmp_path: Path) -> None:
    def digest(state: dict[str, Tensor]) -> str:
        torch.save(state, tmp_path / "net.pt")
        return read_weights(tiny(f"init.from_weights={tmp_path}/net.pt"))[1]

    one = torch.arange(6.0).reshape(2, 3)
    states = [
        {"a": one},
        {"b": one},
        {"a": one.T},
        {"a": one.reshape(3, 2)},
        {"a": one.half()},
        {"a": one.bfloat16()},
        {"a": one, "b": torch.tensor(0)},
        {"a": one + torch.finfo(torch.float32).eps * one},
    ]
    assert len({digest(state) for state in states}) == len(states)
    assert digest({"a": one}) == digest({"a": one.T.contiguous().T})
    pair = {"a": one, "b": one + 1}
    assert digest(pair) == digest(dict(reversed(pair.items())))


def test_records_hold_no_place(tiny, shallow) -> None:
    outcome = train(tiny(*DEEPER, from_shallow(shallow)), {}, [from_shallow(shallow)])
    assert outcome.record.overrides == ["init.from_weights=RUN_OR_FILE"]
    text = outcome.path.read_text()
    assert str(shallow.path.parents[1]) not in text
    changed = altered(outcome.record, {"science.init.from_weights_content": "abc"})
    assert run_id(changed.science) != outcome.record.run
