"""`scripts/benchmark.py`: an entry from its name to its results, interrupted and gone on with,
checked and ranked."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from benchmark_made_up import card
from benchmark_made_up import results as made_up
from conftest import CONF, compose_config
from rectifiers.cli import benchmark as running
from rectifiers.cli import benchmark_card
from rectifiers.cli import benchmark_check as checking
from rectifiers.cli.benchmark import Entry, check_task, work
from rectifiers.cli.benchmark_check import check
from rectifiers.cli.composition import compose_job
from rectifiers.results.benchmark import card as cards
from rectifiers.results.benchmark import definition
from rectifiers.results.benchmark.definition import Benchmark, benchmark, task_hash
from rectifiers.results.benchmark.entries import EntryResults, load, save
from rectifiers.results.benchmark.standing import standing
from rectifiers.runner import Overrides
from rectifiers.runs.identity import run_id, science
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import checked
from rectifiers.runtime.signals import Stopped
from rectifiers.training.run import train

Call = Callable[..., CompletedProcess[str]]
OVERRIDES = [
    "data=digits8",
    "data.split_seed=0",
    "model=mlp",
    "model.depth=1",
    "model.hidden=4",
    "trainer.max_epochs=1",
]


@pytest.fixture
def small(tmp_path: Path, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entry]:
    """An entry of a benchmark of one task, whose seven runs take seconds."""
    whole = yaml.safe_load(definition.PLACE.read_text())
    config = compose_config(*whole["always"], *OVERRIDES)
    task = {**whole["tasks"]["chain14"], "overrides": OVERRIDES, "rates": [0.01, 0.1]}
    task["science"] = task_hash(science(config))
    place = tmp_path / "tiny.yaml"
    place.write_text(yaml.safe_dump({**whole, "version": "tiny", "tasks": {"tiny": task}}))
    monkeypatch.setattr(definition, "PLACE", place)
    monkeypatch.setattr(running, "run_all", run_in_this_process)
    benchmark.cache_clear()
    yield Entry.of(["activation=elu", f"runs_dir={tmp_path}/runs", f"cache_dir={fitted}"])
    benchmark.cache_clear()


def run_in_this_process(
    runs: Sequence[Overrides], processes: int | None = None
) -> dict[Overrides, str]:
    for run in runs:
        train(*compose_job(run), run)
    return {}


def test_every_task_is_what_its_hash_says() -> None:
    for name, task in benchmark().tasks.items():
        config = Entry.of(["activation=mish", "init=xavier"]).configuration(task)[0]
        check_task(name, task, config)
        with pytest.raises(InputError, match=rf"^task {name} comes to .* conf/ has changed"):
            check_task(name, task, config.replaced({"optim.momentum": 0.5}))


def test_the_hash_of_a_benchmark_is_of_all_that_moves_a_number_and_of_no_title() -> None:
    plain = benchmark().model_dump(mode="json")
    first = next(iter(plain["tasks"]))

    def changed(key: str, value: object) -> str:
        return checked(
            Benchmark,
            {**plain, "tasks": {**plain["tasks"], first: {**plain["tasks"][first], key: value}}},
        ).hash

    assert changed("title", "other words") == benchmark().hash
    assert changed("rates", [0.5, 1.0]) != benchmark().hash
    assert checked(Benchmark, {**plain, "seeds": 6}).hash != benchmark().hash


@pytest.mark.parametrize(
    ("given", "name", "target"),
    [
        (["init=lsuv"], "relu+lsuv", "rectifiers.activations.relu"),
        (["init=lsuv", "activation=prelu"], "prelu+lsuv", "rectifiers.activations.prelu"),
        (["activation._target_=torch.nn.Mish"], "Mish", "torch.nn.Mish"),
    ],
)
def test_an_entry_is_of_the_activation_that_its_name_says(
    given: list[str], name: str, target: str
) -> None:
    entry = Entry.of(given)
    assert entry.name == name
    for task in benchmark().tasks.values():
        assert entry.configuration(task)[0].activation.target == target


@pytest.mark.parametrize(
    "given", ["optim.lr=1", "data=digits", "seed=3", "trainer.precision=64-true", "relu"]
)
def test_what_a_task_fixes_is_not_the_entrys_to_choose(given: str) -> None:
    with pytest.raises(
        InputError, match=rf"^{given} is not the entry's to choose.* give activation=, init="
    ):
        Entry.of([given])


def test_an_entry_is_searched_judged_interrupted_gone_on_with_and_checked(
    small: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def interrupted(runs: Sequence[Overrides], processes: int | None) -> dict[Overrides, str]:
        calls.append([run[-1] for run in runs])
        run_in_this_process(runs if len(calls) == 1 else runs[:2])
        if len(calls) == 2:
            monkeypatch.setattr(running, "run_all", run_in_this_process)
            raise Stopped(2, "with its runs")
        return {}

    monkeypatch.setattr(running, "run_all", interrupted)
    with pytest.raises(Stopped):
        work(small, "quick")
    assert calls == [["seed=1000"] * 2, [f"seed={seed}" for seed in range(5)]]
    found = work(small, "quick")
    own = standing(benchmark(), "tiny", found)
    assert (own.is_complete, sorted(own.judged), own.rate) == (True, [0, 1, 2, 3, 4], 0.1)
    monkeypatch.setattr(running, "run_all", None)
    assert work(small, "quick") == found  # nothing is run again
    assert load(save(tmp_path, found)) == found
    monkeypatch.setattr(checking, "committed_code", lambda commit: found.origins[0].code)
    monkeypatch.setattr(checking, "committed_benchmark", lambda commit: benchmark().hash)
    clean = with_origin(found, git_dirty=False, git_sha="0" * 40)
    check(clean, "elu")
    refuse = functools.partial(pytest.raises, InputError)
    with refuse(match="of another configuration"):
        check(with_run(clean, rate=0.02), "elu")
    with refuse(match="neither of the search nor of the rate"):
        check(with_run(clean, run=run_at(small, 0.01, 3), rate=0.01, seed=3), "elu")
    with refuse(match="it names no activation, so its runs were of the default"):
        check(clean.model_copy(update={"overrides": ("init=he",)}), "elu")
    with refuse(match="is of the data other, not of the task's"):
        check(with_origin(clean, data="other"), "elu")
    with refuse(match="code that was not committed"):
        check(with_origin(clean, git_dirty=True), "elu")
    with refuse(match=r"its runs are of code c0de, and commit 00000000 has"):
        check(with_origin(clean, code="c0de"), "elu")
    with refuse(match="it is of the benchmark v0, and this is tiny"):
        check(clean.model_copy(update={"benchmark": "v0"}), "elu")
    with refuse(match="its entry is elu; name entry and file so"):
        check(clean, "mish")
    monkeypatch.setattr(checking, "committed_benchmark", lambda commit: "older")
    with refuse(match="has another benchmark than tiny"):
        check(clean, "elu")


def test_failed_runs_are_counted_and_end_the_entry(
    small: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "run_all", lambda runs, _: dict.fromkeys(runs, "killed"))
    with pytest.raises(InputError, match=r"^runs of elu that failed: 2, named above"):
        work(small, "quick")


def with_origin(found: EntryResults, **changes: object) -> EntryResults:
    return found.model_copy(
        update={"origins": tuple(each.model_copy(update=changes) for each in found.origins)}
    )


def with_run(found: EntryResults, **changes: object) -> EntryResults:
    *others, last = found.runs
    return found.model_copy(update={"runs": (*others, last.model_copy(update=changes))})


def run_at(entry: Entry, rate: float, seed: int) -> str:
    """The name of a run that a search has not found best."""
    config = entry.configuration(benchmark().tasks["tiny"])[0].replaced(
        {"optim.lr": rate, "seed": seed}
    )
    return run_id(science(config))


def test_an_activation_that_nothing_learns_through_is_refused_with_the_reason(small: Entry) -> None:
    threshold = [
        "activation=torch",
        "activation.name=Threshold",
        "activation.settings={threshold:1000,value:0}",
    ]
    entry = Entry.of([*small.places, *threshold])
    found = work(entry, "quick")
    assert "has a derivative of 0" in found.refused["tiny"]
    assert not found.runs


def test_the_script_writes_an_entry_a_card_and_the_leaderboard_and_refuses_a_stale_one(
    small: Entry, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        benchmark_card, "measure", lambda entry: card(entry=entry.name, overrides=entry.overrides)
    )
    own, results = ["--results", tmp_path / "results", "--jobs", 1], tmp_path / "results"
    answer = call("scripts/benchmark.py", "activation=elu", *small.places, *own)
    assert "elu: 7 runs in all, of which 0 are done already" in answer.stderr
    board = results / "benchmark"
    files = [
        "benchmark/elu.json",
        *(f"cards/elu{kind}" for kind in (".md", ".svg", ".json")),
    ]
    assert answer.stdout.splitlines()[-4:] == [f"{results}/{name}" for name in files]
    assert "What trains" in answer.stdout
    monkeypatch.setattr(checking, "_reason_of", lambda origin: None)  # the code may have changes
    assert call("scripts/benchmark.py", "leaderboard", *own).returncode == 0
    assert "| 1 | [elu](../cards/elu.md) |" in (board / "LEADERBOARD.md").read_text()
    assert call("scripts/benchmark.py", "check", *own).returncode == 0
    assert "| [elu](../cards/elu.md) | 1 | - | - |" in (board / "CARDS.md").read_text()
    assert "](elu.svg)" in (results / "cards" / "elu.md").read_text()
    pages = ("benchmark/CARDS.md", "benchmark/LEADERBOARD.md")
    for name in ("cards/elu.md", "cards/elu.svg", *pages):
        before = (results / name).read_text()
        (results / name).write_text("better than all")
        answer = call("scripts/benchmark.py", "check", *own)
        assert f"not what the records say: {results / name}; run python" in answer.stderr
        (results / name).write_text(before)
    answer = call("scripts/benchmark.py", "activation=elu", *small.places, *own)
    assert "elu: 7 runs in all, of which 7 are done already" in answer.stderr
    before = sorted(results.rglob("*"))
    answer = call(
        "scripts/benchmark.py",
        "activation=relu",
        "activation._target_=not.there",
        *small.places,
        *own,
    )
    assert answer.returncode == 1
    assert answer.stderr.endswith(
        "cannot be imported (No module named 'not'); give the dotted name of a function\n"
    )
    assert sorted(results.rglob("*")) == before
    answer = call("scripts/benchmark.py", "activation=elu", "size=huge", *own)
    assert answer.stderr == "error: size=huge is not known; give one of: quick, full\n"


@pytest.mark.parametrize("command", ["check", "leaderboard"])
@pytest.mark.parametrize("kind", ["benchmark", "cards"])
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
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    override: str,
    kind: str,
    command: str,
) -> None:
    monkeypatch.setenv("SECRET", "5eCr37")
    (tmp_path / "OUTSIDE.yaml").write_text("_target_: rectifiers.activations.relu\n")
    outside = os.path.relpath(tmp_path / "OUTSIDE", CONF / "activation")
    told = ("activation=relu", override.replace("../../OUTSIDE", outside))
    results = tmp_path / "results"
    if kind == "cards":
        cards.save(results / kind, card(entry="relu", overrides=told))
    else:
        own = {"overrides": told, "benchmark": benchmark().hash}
        save(results / kind, made_up("relu", [1] * 5).model_copy(update=own))
    done = call("scripts/benchmark.py", command, "--results", results)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"error: {results}/{kind}/relu.json: {told[1]} ")
    assert "5eCr37" not in done.stdout + done.stderr
    assert [path.name for path in results.rglob("*") if path.is_file()] == ["relu.json"]


def test_the_leaderboard_takes_in_nothing_that_the_check_refuses(
    call: Call, tmp_path: Path
) -> None:
    save(tmp_path / "benchmark", made_up("relu", [1] * 5))
    check, board = (
        call("scripts/benchmark.py", command, "--results", tmp_path)
        for command in ("check", "leaderboard")
    )
    assert board.returncode == 1
    assert board.stderr == check.stderr
    assert len(board.stderr.splitlines()) == 1
    assert not (tmp_path / "benchmark" / "LEADERBOARD.md").exists()


def test_a_card_without_its_entry_is_refused(call: Call, tmp_path: Path) -> None:
    kept = cards.save(tmp_path / "cards", card(entry="relu", overrides=("activation=relu",)))
    for command in ("check", "leaderboard"):
        done = call("scripts/benchmark.py", command, "--results", tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {kept} is the card of an entry that has no results")


def test_a_card_keeps_what_was_measured_and_says_what_could_not_be(
    small: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def part(name: str, fails: bool = False) -> None:
        def make(entry: Entry) -> dict[str, object]:
            made.append(name)
            if fails:
                raise InputError("it has no shortcuts")
            return {"part": name}

        monkeypatch.setattr(benchmark_card, f"_{name}", make)

    monkeypatch.setattr(benchmark_card, "DEEP", "tiny")
    for name in ("paper", "start", "trains", "cost"):
        part(name, fails=name == "start")
    found = benchmark_card.measure(small)
    assert (found.entry, found.paper, found.start, found.failed) == (
        "elu",
        {"part": "paper"},
        None,
        {"start": "it has no shortcuts"},
    )
    assert benchmark_card.measure(small) == found
    assert made == [
        "paper",
        "start",
        "trains",
        "cost",
        "start",
    ]  # nothing that was done is done again
    threshold = [
        "activation=torch",
        "activation.name=Threshold",
        "activation.settings={threshold:1000,value:0}",
    ]
    refused = benchmark_card.measure(Entry.of([*small.places, *threshold]))
    assert set(refused.failed) == {"paper", "start", "trains", "cost"}
    assert "has a derivative of 0" in refused.failed["cost"]


@pytest.mark.parametrize("command", ["check", "leaderboard"])
def test_without_entries_one_line_says_so(call: Call, tmp_path: Path, command: str) -> None:
    done = call("scripts/benchmark.py", command, "--results", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith(f"{tmp_path}/benchmark has no entries of {benchmark().version}; ")
    assert not list(tmp_path.iterdir())
