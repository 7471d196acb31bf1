"""`scripts/benchmark.py`: an entry from its name to its results, interrupted and gone on with,
checked and ranked."""

import csv
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from benchmark_made_up import PARTS, results, run
from conftest import CONF, ROOT, compose_config
from made_up import altered, diverged, epoch, result, training
from rectifiers.benchmark import card as cards
from rectifiers.benchmark import definition
from rectifiers.benchmark import entries as filed
from rectifiers.benchmark import run as running
from rectifiers.benchmark.definition import Benchmark, Entry, benchmark, task_hash
from rectifiers.benchmark.entries import EntryResults, RunResult, load, save
from rectifiers.benchmark.leaderboard import runs_csv
from rectifiers.benchmark.ranking import depth_reached
from rectifiers.benchmark.run import (
    check_available,
    check_unchanged,
    is_of_present_code,
    result_of,
    run_entry,
)
from rectifiers.cli.composition import compose_job
from rectifiers.cli.runner import Overrides
from rectifiers.runs import provenance
from rectifiers.runs.identity import run_id, science
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject, checked
from rectifiers.runtime.stopping import Stopped
from rectifiers.training.train import train
from refusals import refused

Call = Callable[..., CompletedProcess[str]]
ALWAYS = ["preprocess=pixel_mean", "optim=plain", "data.protocol=held_out", "evaluation=center"]
OVERRIDES = [
    "data=digits8",
    "data.split_seed=0",
    "model=mlp",
    "model.depth=1",
    "model.hidden=4",
    "trainer.max_epochs=1",
]
THRESHOLD = [
    "activation=torch.nn.Threshold",
    "activation.threshold=1000",
    "activation.value=0",
]


@pytest.fixture
def tiny_entry(tmp_path: Path, fitted: Path, monkeypatch) -> Iterator[Entry]:
    """An entry of a benchmark of one task, whose runs take seconds."""
    whole = yaml.safe_load(definition.DEFINITION.read_text())
    config = compose_config(*ALWAYS, *OVERRIDES)
    task = {**whole["tasks"]["mlp"], "overrides": OVERRIDES, "rates": [0.03, 0.1, 0.3]}
    task["seeds"] = 5
    task["data"] = whole["tasks"]["deep50"]["data"]
    task["science"] = task_hash(config)
    place = tmp_path / "tiny.yaml"
    changes = {"version": "tiny", "search_seeds": [1000, 1001], "reach": 9.0}
    changes |= {"tasks": {"tiny": task}, "always": ALWAYS}
    place.write_text(yaml.safe_dump(whole | changes))
    monkeypatch.setattr(definition, "DEFINITION", place)
    monkeypatch.setattr(running, "run_all", run_in_this_process)
    benchmark.cache_clear()
    yield Entry.of(["activation=elu", f"runs_dir={tmp_path}/runs", f"cache_dir={fitted}"])
    benchmark.cache_clear()


def run_in_this_process(
    runs: Sequence[Overrides],
    processes: int | None = None,
    follow_up: Callable[[Overrides], Sequence[Overrides]] = lambda overrides: (),
    expected: Callable[[], int] | None = None,
) -> dict[Overrides, str]:
    pending = list(runs)
    while pending:
        overrides = pending.pop(0)
        train(*compose_job(overrides), overrides)
        pending += follow_up(overrides)
    return {}


def test_every_task_is_what_its_hash_says(monkeypatch) -> None:
    entry = Entry.of(["activation=mish", "init=xavier"])
    configs = entry.configs()
    for name, task in benchmark().tasks.items():
        assert entry.config(task).activation.target == "rectifiers.activations.mish"
        assert configs[name] == entry.config(task)  # also where a model sets the std of fc layers
        with refused("conf/ has changed"):
            entry.config(task.model_copy(update={"overrides": ("model=mlp",)}))


@pytest.mark.parametrize(
    "arguments",
    [
        ["init=torch_default"],  # which has a key that all rules have
        ["activation=dks", "init=delta_orthogonal"],
        ["activation=leaky_relu", "activation.slope=0.2", "init.bias=0.1"],
        ["activation=torch.nn.Mish", "init=sparse"],
    ],
)
def test_entries_are_read_as_they_are_composed(arguments: list[str]) -> None:
    entry, name = Entry.of(arguments), "cifar_small14"  # whose model sets a key of init
    assert entry.configs()[name] == entry.config(benchmark().tasks[name])


def test_runs_of_cards_have_their_folder() -> None:
    task = benchmark().tasks["deep50"]
    for places, folder in ((), "runs/cards"), (["runs_dir=mine"], "mine"):
        config = Entry.of(["activation=elu", *places]).config(task)
        assert str(config.runs_dir) == folder


def test_definition_is_frozen() -> None:
    # a change makes another version: a new file, with results of its own
    frozen = {"v4.yaml": "4ed008bb878967e2bcfaba9ecc72ee7ad1d2cee627486438ce28eb87203d49c9"}
    place = ROOT / "src" / "rectifiers" / "benchmark"
    digests = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in place.glob("v*.yaml")}
    assert digests == frozen
    assert (benchmark().version, benchmark().hash) == ("v4", "ba6ea3b0e8a3")


def test_benchmark_hash_covers_all_but_titles() -> None:
    plain = benchmark().model_dump(mode="json")
    first = next(iter(plain["tasks"]))

    def changed(key: str, value: object) -> str:
        task = {**plain["tasks"][first], key: value}
        return checked(Benchmark, {**plain, "tasks": {**plain["tasks"], first: task}}).hash

    assert changed("title", "other words") == benchmark().hash
    assert changed("rates", plain["tasks"][first]["rates"][1:]) != benchmark().hash
    assert changed("seeds", 6) != benchmark().hash
    assert checked(Benchmark, {**plain, "reach": 1.0}).hash != benchmark().hash


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["init=lsuv"], "relu+lsuv"),
        (["init=he", "activation=prelu", "activation.slope=0.1"], "prelu-slope=0.1"),
        (["activation._target_=my.module.relu"], "my.module.relu"),
        (["activation=my_file.my_function"], "my_file.my_function"),
        (["activation=relu", "init=he_scaled", "init.beta=2"], "relu+he_scaled-beta=2"),
        (["activation=relu", "activation.settings={a:1/2}"], "relu-settings=_a_1_2_"),
    ],
)
def test_entry_is_named_by_what_it_chooses(overrides: list[str], name: str) -> None:
    assert Entry.of(overrides).name == name


@pytest.mark.parametrize(
    "override",
    [
        *("optim.lr=1", "data=digits", "seed=3", "trainer.precision=64-true", "relu"),
        "init.from_weights=net.pt",
    ],
)
def test_entry_cannot_choose_what_tasks_fix(override: str) -> None:
    with refused(rf"^{override} cannot be chosen.* give activation="):
        Entry.of([override])


def test_record_is_kept_as_what_ranks_need() -> None:
    history = [epoch(1), epoch(2) | {"train_loss": 0.25, "val/top1_error_pct": 11.0}]
    history.append(epoch(3) | {"val/top1_error_pct": 12.5})
    settings = {**training().science, "optim": {"lr": 0.1}}
    record = training(science=settings, history=history, protocols={"center": result(45, 50)})
    row, lost = result_of(record, "easy"), result_of(diverged(science=settings), "easy")
    assert (row.val_error_pct, row.least_loss, row.test_error_pct) == (12.5, 0.25, 10.0)
    assert row.least_val_error_pct == 11.0
    assert (lost.diverged, lost.val_error_pct) == (True, None)
    changed = altered(record, {"provenance.git_dirty": True})
    commits = [result_of(one, "easy").commit for one in (record, changed)]
    assert commits == ["0123456789", "0123456789-dirty"]
    assert lost.error_pct == 90.0  # guessing
    assert [run("deep", 0.1, 0, 50.0, loss).trained for loss in (1.9, 2.0)] == [True, False]


@pytest.mark.process
def test_committed_entries_are_of_this_benchmark() -> None:
    committed = filed.load_all(ROOT / "results" / "benchmark")
    assert len(committed) > 50
    assert {name: text for name, e in committed.items() if (text := e.objection())} == {}


def test_interrupted_entry_goes_on(tiny_entry: Entry, tmp_path: Path, monkeypatch) -> None:
    calls: list[list[str]] = []

    def interrupted(runs: Sequence[Overrides], *_: object) -> dict[Overrides, str]:
        calls.append([overrides[-1] for overrides in runs])
        run_in_this_process(runs[:4])
        raise Stopped(2, "with its runs, 4 of 6 done")

    monkeypatch.setattr(running, "run_all", interrupted)
    with pytest.raises(Stopped):
        run_entry(tiny_entry, "quick")
    assert calls == [["seed=1000", "seed=1001"] * 3]
    monkeypatch.setattr(running, "run_all", run_in_this_process)
    entry = run_entry(tiny_entry, "quick")
    assert (entry.gap("tiny"), len(entry.judged("tiny"))) == (None, 5)
    monkeypatch.setattr(running, "run_all", lambda runs, *_: dict.fromkeys(runs, "not done"))
    assert run_entry(tiny_entry, "quick") == entry  # nothing is run again
    assert run_entry(tiny_entry, "full") == entry  # runs of other tasks stay
    assert load(save(tmp_path / "results", entry)) == entry


def test_each_run_is_kept_and_continued_from_the_file_alone(
    tiny_entry: Entry, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(provenance, "is_changed", lambda: False)
    keep, path = partial(save, tmp_path), tmp_path / f"{tiny_entry.name}.json"

    def interrupted(runs, processes, follow_up, expected) -> dict[Overrides, str]:
        for overrides in runs[:3]:
            train(*compose_job(overrides), overrides)
            follow_up(overrides)
        raise Stopped(2, "with its runs, 3 of 6 done")

    monkeypatch.setattr(running, "run_all", interrupted)
    with pytest.raises(Stopped):
        run_entry(tiny_entry, "quick", keep=keep)
    assert len(load(path).runs) == 3
    shutil.rmtree(tmp_path / "runs")  # its file alone is left
    monkeypatch.setattr(running, "run_all", run_in_this_process)
    entry = run_entry(tiny_entry, "quick", before=load(path), keep=keep)
    assert (load(path), entry.gap("tiny"), entry.objection()) == (entry, None, None)
    assert len(list(tmp_path.glob("runs/[0-9a-f]*/record.json"))) == len(entry.runs) - 3


@pytest.fixture
def deep_entry(tiny_entry: Entry) -> Entry:
    """An entry of a benchmark of two depths."""
    whole = yaml.safe_load(definition.DEFINITION.read_text())
    shallow = {**whole["tasks"]["tiny"], "depth": 2}
    overrides = [*OVERRIDES, "model.hidden=5"]
    deep = {**shallow, "depth": 3, "overrides": overrides}
    deep["science"] = task_hash(compose_config(*ALWAYS, *overrides))
    whole["tasks"] = {"deep": deep, "shallow": shallow}
    definition.DEFINITION.write_text(yaml.safe_dump(whole))
    benchmark.cache_clear()
    return tiny_entry


def make_up_runs(monkeypatch, trains: Mapping[str, bool]) -> tuple[list[str], list[int]]:
    """Let the runs of a task train, or not; return the tasks of what ran, and how many runs
    there seemed to be, before each."""
    done: set[tuple[str, float, int]] = set()
    tasks: list[str] = []
    totals: list[int] = []

    def run_all(runs, processes, follow_up, expected) -> dict[Overrides, str]:
        pending = list(runs)
        while pending:
            totals.append(len(done) + len(pending) + expected())
            overrides = pending.pop(0)
            rate, seed = (override.partition("=")[2] for override in overrides[-2:])
            tasks.append("deep" if "model.hidden=5" in overrides else "shallow")
            done.add((tasks[-1], float(rate), int(seed)))
            pending += follow_up(overrides)
        totals.append(len(done) + expected())
        return {}

    def stored_result(task: str, config: object, rate: float, seed: int) -> RunResult | None:
        loss = 1.0 if trains[task] else 9.5
        error = 20.0 if rate == 0.1 else 50.0
        return run(task, rate, seed, error, loss) if (task, rate, seed) in done else None

    monkeypatch.setattr(running, "run_all", run_all)
    monkeypatch.setattr(running, "stored_result", stored_result)
    return tasks, totals


def test_failed_search_ends_task_and_deeper_ones(deep_entry: Entry, monkeypatch) -> None:
    tasks, totals = make_up_runs(monkeypatch, {"shallow": False, "deep": True})
    entry = run_entry(deep_entry, "quick")
    assert tasks == ["shallow"] * 6  # the search alone
    assert totals[-1] == 6
    assert entry.gap("shallow") == "5 runs missing, because no learning rate trains shallow"
    assert entry.gap("deep") == "11 runs missing, because no learning rate trains shallow"
    assert "size=quick --all" in str(entry.objection())
    assert depth_reached(entry, "quick") == 0
    whole = run_entry(deep_entry, "quick", is_whole=True)
    assert tasks.count("deep") == 11
    assert (whole.gap("shallow"), whole.gap("deep")) == (None, None)
    assert depth_reached(whole, "quick") == 0


def test_deeper_task_follows_and_is_counted(deep_entry: Entry, monkeypatch) -> None:
    tasks, totals = make_up_runs(monkeypatch, {"shallow": True, "deep": False})
    entry = run_entry(deep_entry, "quick")
    assert set(tasks[:6]) == {"shallow"}
    assert totals[0] == 22  # searches and judged runs
    assert (entry.gap("shallow"), entry.has_failed("deep")) == (None, True)
    assert depth_reached(entry, "quick") == 2
    assert totals[-1] == len(tasks)


def test_runs_of_one_task_alone(deep_entry: Entry, monkeypatch) -> None:
    tasks, totals = make_up_runs(monkeypatch, {"shallow": True, "deep": True})
    entry = run_entry(deep_entry, "quick", only=["deep"])
    assert set(tasks) == {"deep"}
    assert totals[0] == totals[-1] == 11

    before = entry.model_copy(update={"refused": {"shallow": "it has no gradient"}})
    again = run_entry(deep_entry, "quick", before=before, only=["deep"])
    assert again.refused == before.refused


def test_whole_entry_waits_for_no_search(deep_entry: Entry, monkeypatch) -> None:
    tasks, _ = make_up_runs(monkeypatch, {"shallow": True, "deep": True})
    run_entry(deep_entry, "quick", is_whole=True)
    assert "deep" in tasks[:6]


def run_name(entry: Entry, rate: float, seed: int) -> str:
    config = entry.config(benchmark().tasks["tiny"])
    return run_id(science(config.replaced({"optim.lr": rate, "seed": seed})))


@pytest.fixture
def complete(tiny_entry: Entry) -> EntryResults:
    """The entry's results as a file may hold them, with errors that are made up."""
    errors = {0.03: 50.0, 0.1: 20.0, 0.3: 40.0}
    planned = [(rate, seed) for rate in errors for seed in (1000, 1001)]
    planned += [(0.1, seed) for seed in range(5)]
    facts = {"data": benchmark().tasks["tiny"].data, "commit": "0123456789"}
    runs = [
        run("tiny", rate, seed, errors[rate]).model_copy(
            update={**facts, "run": run_name(tiny_entry, rate, seed)}
        )
        for rate, seed in planned
    ]
    changes = {"overrides": tiny_entry.overrides, "benchmark": benchmark().hash}
    return results("elu", []).model_copy(update={**changes, "runs": tuple(runs)})


def test_false_entry_is_refused(tiny_entry: Entry, complete: EntryResults, tmp_path: Path) -> None:
    path = save(tmp_path, complete)
    assert load(path) == complete
    text = path.read_text()
    for change, message in objectionable(tiny_entry, complete).items():
        path.write_text(json.dumps(json.loads(text) | json.loads(change)))
        with refused(message):
            load(path)
    mish = save(tmp_path, complete).rename(tmp_path / "mish.json")
    with refused("its entry is elu; name entry and file so"):
        load(mish)


def objectionable(tiny_entry: Entry, entry: EntryResults) -> dict[str, str]:
    """What may be wrong with an entry's file: changes of it as JSON, and the message."""
    other = run_name(tiny_entry, 0.01, 3)
    *rows, last = entry.model_dump(mode="json")["runs"]

    def changed(**changes: object) -> str:
        return json.dumps({"runs": [*rows, last | changes]})

    return {
        changed(rate=0.02): "has another configuration",
        changed(run=other, rate=0.01, seed=3): "neither of the search nor of the rate",
        changed(data="other"): "is of the data other, not of the task's",
        changed(task="another"): "has no such task",
        changed(seed=0): "stands twice",
        changed(seed=2**32): "has another configuration",
        changed(val_error_pct=None): "one error is null",
        changed(test_error_pct=101.0): "less than or equal to 100",
        '{"overrides": ["init=he"]}': "not an activation and an initialiser",
        '{"overrides": ["activation=elu", "runs_dir=/tmp"]}': "not an activation",
        '{"overrides": ["activation=elu", "seed=1"]}': "elu.json: seed=1 cannot be chosen",
        '{"benchmark": "v0"}': "it is of the benchmark v0, and this is tiny",
        '{"entry": "mish"}': "its entry is elu",
        '{"more": 1}': "is no usable entry",
    }


@pytest.mark.parametrize("outside", [True, False])
def test_data_of_a_user_may_lack(
    tiny_entry: Entry, outside: bool, tmp_path: Path, monkeypatch, capsys
) -> None:
    def refusal(config: object) -> None:
        if next(lacks):
            raise InputError(f"no files under {tmp_path}")

    def use(**changes: JsonObject) -> None:
        whole = yaml.safe_load(definition.DEFINITION.read_text())
        tasks = {name: {**whole["tasks"]["tiny"], **change} for name, change in changes.items()}
        definition.DEFINITION.write_text(yaml.safe_dump({**whole, "tasks": tasks}))
        benchmark.cache_clear()

    monkeypatch.setattr(running, "refusal", refusal)
    use(tiny={"outside": outside})
    lacks = itertools.repeat(True)
    with refused("no files under"):  # nothing is left to run
        run_entry(tiny_entry, "quick")
    if not outside:
        return
    use(tiny={}, tiny_too={"outside": False})
    lacks = iter([True, False])
    monkeypatch.setattr(running, "run_all", lambda *rest: {})
    lacking = run_entry(tiny_entry, "quick")
    assert lacking.gap("tiny") == "its data are not there"  # a place of the user's is not kept
    assert f"tiny is left out: no files under {tmp_path}" in capsys.readouterr().err
    monkeypatch.setattr(running, "run_all", run_in_this_process)
    use(tiny={})
    lacks = iter([False])
    complete = run_entry(tiny_entry, "quick")
    lacks = iter([True])
    assert run_entry(tiny_entry, "quick") == complete  # made by a call that had the data


def test_results_that_were_made_elsewhere_stay(
    tiny_entry: Entry, complete: EntryResults, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(provenance, "is_changed", lambda: False)
    pilot = complete.model_copy(update={"runs": complete.runs[:-1], "cost": 1.5})
    whole = run_entry(tiny_entry, "quick", before=pilot)
    assert (whole.gap("tiny"), whole.cost) == (None, 1.5)
    assert whole.runs[:-1] == pilot.runs
    assert len(list(tmp_path.glob("runs/[0-9a-f]*/record.json"))) == 1  # what was missing
    asked: list[Overrides] = []
    monkeypatch.setattr(running, "run_all", lambda runs, *_: asked.extend(runs) or {})
    dirty = [run.model_copy(update={"commit": "c0dec0de-dirty"}) for run in complete.runs]
    run_entry(tiny_entry, "quick", before=complete.model_copy(update={"runs": tuple(dirty)}))
    assert len(asked) == 6  # nothing of uncommitted code stays: the whole search


@pytest.mark.parametrize("name", ["f", "g"])
def test_function_that_changed_since_it_ran_is_refused(name, tmp_path: Path, monkeypatch) -> None:
    file, note = tmp_path / f"a_users_{name}.py", tmp_path / "runs" / "note"
    file.write_text("import functools\ndef f(x):\n    return x\ng = functools.partial(f)\n")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        check_unchanged(f"a_users_{name}.{name}", note)
    file.write_text("def f(x):\n    return -x\n")
    with refused(rf"{file.name} has changed since a_users_\w.{name} ran"):
        check_unchanged(f"a_users_{name}.{name}", note)
    check_unchanged("torch.nn.ReLU", note)


def test_function_that_never_ran_may_be_mended(tiny_entry: Entry, tmp_path, monkeypatch) -> None:
    file = tmp_path / "another_users_file.py"
    monkeypatch.syspath_prepend(tmp_path)
    entry = Entry.of([*tiny_entry.places, "activation=another_users_file.f"])
    file.write_text("def f(x):\n    return None\n")
    with refused(r"f cannot be run: .* makes NoneType"):
        run_entry(entry, "quick")
    file.write_text("def f(x):\n    return x.sin()  # longer, so Python compiles it again\n")
    monkeypatch.delitem(sys.modules, "another_users_file")
    assert run_entry(entry, "quick").gap("tiny") is None


def test_stored_runs_of_changed_functions_go(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "committed_file", lambda commit, path: "old")
    stored = run("easy", 0.1, 0, 1.0).model_copy(update={"commit": "c0dec0de"})
    for content, is_same in (("old\n", True), ("new\n", False)):
        (tmp_path / "my_file.py").write_text(content)
        assert is_of_present_code(stored, ["my_file.py"]) == is_same
    assert is_of_present_code(stored, [])


def test_activation_without_gradient_is_refused(tiny_entry: Entry, monkeypatch) -> None:
    entry = Entry.of([*tiny_entry.places, *THRESHOLD])
    with refused("has a derivative of 0"):
        run_entry(entry, "quick")
    monkeypatch.setattr(cards, "DEEP", "tiny")
    parts, failed = cards.measure(entry)
    assert not parts
    assert "has a derivative of 0" in failed["cost"]


def test_script_writes_entry_card_and_leaderboard(tiny_entry, tmp_path, call, monkeypatch) -> None:
    monkeypatch.setattr(cards, "measure", lambda entry, names: (PARTS, {}))
    monkeypatch.setattr(provenance, "is_changed", lambda: False)
    monkeypatch.setattr(filed, "has_commit", lambda commit: not commit.startswith("c0de"))
    folder, places = tmp_path / "results" / "benchmark", tiny_entry.places
    options = ["--results", tmp_path / "results", "--jobs", 1]
    done = call("scripts/benchmark.py", "activation=elu", *places, *options)
    assert "elu: 0 runs done, 11 to do" in done.stderr  # the judged runs, too
    assert "The gain is 1.48" in done.stderr.partition("runs done")[0]
    files = [f"{folder}/elu{suffix}" for suffix in (".json", ".md", ".svg")]
    assert done.stdout.splitlines()[-3:] == files
    assert "Cost" in done.stdout
    assert "](elu.svg)" in (folder / "elu.md").read_text()
    assert call("scripts/benchmark.py", "leaderboard", *options).returncode == 0
    assert call("scripts/benchmark.py", "check", *options).returncode == 0
    assert (
        "no error task that counts has all results of `relu`"
        in (folder.parent / "LEADERBOARD.md").read_text()
    )
    done = call("scripts/benchmark.py", "activation=elu", *places, *options)
    assert " runs done, 0 to do\n" in done.stderr


def test_list_of_runs_is_written_and_checked(complete, call, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(filed, "has_commit", lambda commit: None)
    runs = [run.model_copy(update={"commit": "0123456789"}) for run in complete.runs]
    lost = dict.fromkeys(("val_error_pct", "least_val_error_pct", "test_error_pct"))
    runs[-1] = runs[-1].model_copy(update=lost)
    save(tmp_path / "benchmark", complete.model_copy(update={"runs": tuple(runs)}))

    def check() -> str:
        return call("scripts/benchmark.py", "check", "--results", tmp_path).stderr

    path = tmp_path / "benchmark" / "runs.csv"
    assert f"not what the records say: {path}, {path}.sha256, {tmp_path}/LEADERBOARD.md" in check()
    assert call("scripts/benchmark.py", "leaderboard", "--results", tmp_path).returncode == 0
    assert check() == ""
    text = path.read_text()
    rows = list(csv.DictReader(text.splitlines()))
    last = {"run": runs[-1].run, "entry": "elu", "task": "tiny", "seed": "4", "rate": "0.1"}
    last |= {"val": "", "test": "", "diverged": "1", "commit": "0123456789"}
    assert (len(rows), rows[-1]) == (11, last)
    digest = hashlib.sha256(text.encode()).hexdigest()
    listed = path.with_name("runs.csv.sha256")
    assert listed.read_text() == f"{digest}  runs.csv\n"

    for damaged in (text.replace("\n", "\r\n").encode(), text.encode() + b"\xff"):
        path.write_bytes(damaged)
        assert f"say: {path}; run python scripts/benchmark.py leaderboard" in check()
    path.write_text(text)

    board = tmp_path / "LEADERBOARD.md"
    for stale, content in ((path, text), (listed, listed.read_text()), (board, board.read_text())):
        stale.write_text(content.replace(rows[0]["run"], "0" * 12).replace(digest, "0" * 64))
        assert f"say: {stale}; run" in check()
        stale.write_text(content)


@pytest.mark.parametrize("seed", [0, 1])
def test_list_of_runs_keeps_its_order(complete: EntryResults, seed: int) -> None:
    runs = tuple(random.Random(seed).sample(complete.runs, len(complete.runs)))
    moved = complete.model_copy(update={"runs": runs})
    assert runs_csv({"elu": moved}) == runs_csv({"elu": complete})


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["activation=not.there"], "No module named 'not'"),
        (["init=not_here.either"], "init=not_here.either cannot be imported"),
        (["activation=math.not_there"], "math.not_there cannot be imported"),
        (["activation=mishh"], "did you mean activation=mish"),
        (["activation=mish", "data.root=/not/there"], "data.root=/not/there is not a folder"),
    ],
)
def test_what_is_not_there_is_refused_early(arguments: list[str], reason: str) -> None:
    with refused(reason):
        check_available(Entry.of(arguments), "quick")


@pytest.mark.parametrize("package", ["mnist1d", "matplotlib"])
def test_missing_package_names_its_extra(package: str, monkeypatch) -> None:
    monkeypatch.setattr(running, "find_spec", lambda name: None if name == package else object())
    with refused(rf"{package} is not installed; .*EXTRAS="):
        check_available(Entry.of(["activation=mish"]), "quick")


@pytest.mark.process
def test_early_refusal_imports_no_torch() -> None:
    code = (
        "import sys\n"
        "from rectifiers.benchmark import run\n"
        "from rectifiers.benchmark.definition import Entry\n"
        "run.check_available(Entry.of(['activation=mish', 'data.root=/']), 'quick')\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


DIRTY, UNKNOWN = ({"commit": f"{'c0de' * 3}{mark}"} for mark in ("-dirty", ""))


def test_incomplete_or_uncommitted_entry_is_named(complete, call, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(filed, "has_commit", lambda commit: not commit.startswith("c0de"))
    monkeypatch.setattr(filed, "WITHOUT_COMMIT", ())
    *rows, last = complete.model_dump(mode="json")["runs"]
    own = {"entry": "my_file.f", "overrides": ["activation=relu", "activation._target_=my_file.f"]}
    path = save(tmp_path / "benchmark", complete)
    text = path.read_text()
    for changes, reason in (
        ({}, None),
        ({"runs": [*rows, last | {"commit": None}]}, "the commit of its code is not known"),
        (own, "commit 0123456789 has no my_file.py; commit it"),
        ({"runs": []}, "tiny: 11 runs missing; run the entry again"),
    ):
        entry = checked(EntryResults, json.loads(text) | changes)
        assert str(entry.objection()).startswith(str(reason))
    for runs, reason in (
        (rows, "tiny: 1 run missing; run the entry again with size=quick"),
        ([*rows[1:], last], "tiny: 6 runs missing; run the entry again with size=quick"),
        ([*rows, last | DIRTY], "the code of 1 run(s) was not committed"),
        ([*rows, last | UNKNOWN], f"its code is that of commit {'c0de' * 3}, which this"),
    ):
        path.write_text(json.dumps(json.loads(text) | {"runs": runs}))
        for command in ("check", "leaderboard"):
            refused = call("scripts/benchmark.py", command, "--results", tmp_path)
            assert refused.returncode == 1
            assert refused.stderr.startswith(f"error: {path}: {reason}")


def test_unusable_activation_writes_nothing(tiny_entry, tmp_path, call, monkeypatch) -> None:
    results, places = tmp_path / "results", tiny_entry.places
    missing = ["activation=relu", "activation._target_=not.there"]
    done = call("scripts/benchmark.py", *missing, *places, "--results", results)
    assert done.returncode == 1
    assert "cannot be imported (No module named 'not')" in done.stderr.splitlines()[-1]
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leaves.py").write_text("raise SystemExit(2)\n")
    done = call("scripts/benchmark.py", "activation=leaves.f", *places, "--results", results)
    assert "cannot be imported (SystemExit(2))" in done.stderr.splitlines()[-1]
    assert not list(results.rglob("*.*"))
    spec = benchmark()
    outside = {"tiny": spec.tasks["tiny"].model_copy(update={"outside": True})}
    changed = spec.model_copy(update={"tasks": outside})
    monkeypatch.setattr(running, "benchmark", lambda: changed)
    with refused("cannot be imported"):
        run_entry(Entry.of([*missing, *places]), "quick")


@pytest.mark.parametrize(
    ("words", "status", "refusal"),
    [
        (["activation=elu", "size=huge"], 1, "size=huge is not known; give one of: quick, full"),
        (["leaderbord"], 2, "leaderbord is not a command to use here; give"),
        (["check", "activation=elu"], 2, "check is not a command to use here; give"),
    ],
)
def test_unusable_words_are_refused(call, complete, tmp_path, words, status, refusal) -> None:
    save(tmp_path / "benchmark", complete)
    done = call("scripts/benchmark.py", *words, "--results", tmp_path)
    assert done.returncode == status
    assert refusal in done.stderr


@pytest.mark.parametrize("command", ["check", "leaderboard", "activation=mish"])
@pytest.mark.parametrize(
    "override",
    [
        "init.bias=${oc.env:SECRET}",
        "init.bias=$\\{oc.env:SECRET\\}",
        "activation=../../OUTSIDE",
        "hydra.searchpath=[file:///OUTSIDE]",
    ],
)
def test_overrides_of_a_file_read_nothing_beyond_conf(
    call: Call, tmp_path: Path, monkeypatch, override: str, command: str
) -> None:
    monkeypatch.setenv("SECRET", "5eCr37")
    (tmp_path / "OUTSIDE.yaml").write_text("_target_: rectifiers.activations.relu\n")
    outside = os.path.relpath(tmp_path / "OUTSIDE", CONF / "activation")
    overrides = ("activation=relu", override.replace("../../OUTSIDE", outside))
    folder = tmp_path / "results" / "benchmark"
    save(folder, results("relu", [1] * 5, overrides=overrides, benchmark=benchmark().hash))
    done = call("scripts/benchmark.py", command, "--results", tmp_path / "results")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"error: {folder}/relu.json: {overrides[1]} ")
    assert "5eCr37" not in done.stdout + done.stderr
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["relu.json"]


@pytest.mark.parametrize("command", ["check", "leaderboard"])
@pytest.mark.parametrize("hostile", ["damaged", "link", "pipe", "of another benchmark"])
def test_hostile_entry_is_one_line(call: Call, tmp_path: Path, command: str, hostile: str) -> None:
    path = save(tmp_path / "benchmark", results("relu", [1] * 5))
    if hostile == "damaged":
        path.write_text('{"\x1b[2J": 1}')
    elif hostile != "of another benchmark":
        path.unlink()
        path.symlink_to("/etc/passwd") if hostile == "link" else os.mkfifo(path)
    done = call("scripts/benchmark.py", command, "--results", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {path}")
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr
    assert not (tmp_path / "LEADERBOARD.md").exists()
