"""Folders that somebody else made are data: no command runs what they name, follows their links or
trusts their counts.

The proof that nothing was executed is a marker: a file that the hostile content would have made,
and that is absent. What is named here stands in SECURITY.md, with the tests of other files."""

import json
import os
import pickle
import re
import shutil
import socket
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from urllib.error import URLError

import pytest
import torch
import yaml
from torchvision.datasets import imagenette

from conftest import CONF, ROOT, TINY, compose_config, places
from photos import write_folder
from rectifiers.benchmark.entries import check_overrides
from rectifiers.cli.finished import of_run
from rectifiers.data import cifar10
from rectifiers.runs.folder import begin, run_lock
from rectifiers.runs.identity import run_id
from rectifiers.runs.trust import check_targets
from rectifiers.runtime.files import write_text
from rectifiers.training.checkpoints import AtomicCheckpointIO
from rectifiers.training.train import Outcome, train
from refusals import refused

Call = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Outcome:
    place = tmp_path_factory.mktemp("finished")
    config = compose_config(*TINY, "trainer.max_epochs=1", "evaluation=center", *places(place))
    return train(config, {"data": "digits"})


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Path]:
    """What hostile content would make."""
    yield tmp_path / "executed"
    assert not (tmp_path / "executed").exists()


def foreign(finished: Outcome, place: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a run whose record holds a changed configuration, and the name that fits it."""
    record = json.loads(finished.path.read_text())
    change(record["science"])
    record["run"] = run_id(record["science"])
    folder = place / "runs" / record["run"]
    shutil.copytree(finished.path.parent, folder)
    (folder / "record.json").write_text(json.dumps(record))
    checkpoint = torch.load(folder / "last.ckpt", weights_only=True)
    checkpoint["rectifiers"]["run"] = folder.name
    torch.save(checkpoint, folder / "last.ckpt")
    return folder


def rewrite_config(folder: Path, **data: Any) -> None:
    """Put keys of `data` into the run's config.yaml."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"] |= data
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.fixture
def read(call: Call, tmp_path: Path) -> Call:
    """The command that reads a run's folder, and data that are there from this folder alone."""
    return partial(
        call, "scripts/evaluate.py", "evaluation=ten_view", f"cache_dir={tmp_path}/cache"
    )


@pytest.fixture
def folder(finished: Outcome, tmp_path: Path) -> Path:
    """A copy of a run that somebody else may have changed."""
    return foreign(finished, tmp_path, lambda science: None)


def refusal(done: CompletedProcess[str]) -> str:
    """The one line of a command that refused what it read."""
    assert done.returncode in (1, 2), done.stderr
    (line,) = done.stderr.splitlines()
    return line


FILES, SOURCES = "rectifiers.runtime.files", "rectifiers.data.sources"
CIFAR10 = "rectifiers.data.cifar10"


@pytest.mark.parametrize(
    ("key", "target", "options", "trusted"),
    [
        ("data", "os.system", {"command": "touch MARKER"}, "os"),
        ("activation", "hostile_module.make", {}, "hostile_module"),
        ("init", "rectifiers.initializers.os.system", {}, "rectifiers.initializers.os"),
        ("init", "rectifiers.initializers.importlib", {}, "rectifiers.initializers"),
        ("preprocess", f"{FILES}.write_text", {"path": "MARKER"}, FILES),
        ("preprocess", "rectifiers.data.preprocess.partial", {}, "rectifiers.data.preprocess"),
        ("activation", "torch.nn.init.os", {}, "torch.nn.init"),
        ("activation", "torch.nn.Parameter", {}, "torch.nn"),
        ("data", "torch.nn.ReLU", {}, "torch.nn"),
        ("activation", f"{CIFAR10}.cifar10", {"root": "MARKER", "download": True}, CIFAR10),
        ("init", "rectifiers.activations.relu", {}, "rectifiers.activations"),
        ("data", f"{SOURCES}.ArraySplit", {}, SOURCES),
    ],
)
def test_function_not_in_conf_is_refused(
    read, finished, marker, tmp_path, monkeypatch, key, target, options, trusted
) -> None:
    code = f"import pathlib; pathlib.Path({str(marker)!r}).touch()"
    (tmp_path / "hostile_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    def change(science: dict[str, Any]) -> None:
        kept = science[key] if key != "activation" else {}
        settings = json.loads(json.dumps(options).replace("MARKER", str(marker)))
        science[key] = kept | {"_target_": target, **settings}

    folder = foreign(finished, tmp_path, change)
    line = refusal(read(f"run={folder}"))
    assert line.startswith(f"error: {folder}/record.json: {key}._target_={target} is no ")
    assert line.endswith(f", add trust=[{trusted}]")
    assert "hostile_module" not in sys.modules


def test_function_of_a_trusted_module_is_used(read, finished, tmp_path, monkeypatch) -> None:
    code = "import os\nfrom torch import nn\n\ndef make(channels: int): return nn.PReLU(channels)\n"
    (tmp_path / "friendly_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    made = {"_target_": "friendly_module.make"}
    folder = foreign(finished, tmp_path, lambda science: science.update(activation=made))
    assert "add trust=[friendly_module]" in read(f"run={folder}", "trust=[friendly]").stderr
    done = read(f"run={folder}", "trust=[friendly_module]")
    assert done.returncode == 0, done.stderr
    # through it to another module
    walked = {"_target_": "friendly_module.os.getenv", "key": "HOME"}
    folder = foreign(finished, tmp_path, lambda science: science.update(activation=walked))
    done = read(f"run={folder}", "trust=[friendly_module]")
    assert "activation._target_=friendly_module.os.getenv is no function" in done.stderr


OUT_OF_PLACE: dict[str, Any] = {
    "logger": {"wandb": {"project": "theirs", "mode": "online"}},
    "runs_dir": "MARKER",
    "cache_dir": "MARKER",
    "ckpt_path": "MARKER",
    "evaluation": {"keep_scores": True},
    "data.root": "MARKER",
    "data.download": True,
    "trainer.deterministic": None,  # a default, which no record holds
    "no_key": 1,
    "scheduler.no_key": 1,
}


@pytest.mark.parametrize("key", OUT_OF_PLACE)
def test_keys_that_are_no_science_are_refused(read, finished, marker, tmp_path, key: str) -> None:
    value = json.loads(json.dumps(OUT_OF_PLACE[key]).replace("MARKER", str(marker)))
    section, _, leaf = key.rpartition(".")

    def change(science: dict[str, Any]) -> None:
        (science[section] if section else science)[leaf] = value

    assert key in refusal(read(f"run={foreign(finished, tmp_path, change)}"))


def test_run_does_not_choose_its_logger(folder: Path) -> None:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["logger"] = {"wandb": {"_target_": "os.system", "project": "theirs"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert of_run(str(folder), {})[0].logger == {}
    overrides = {"logger": "wandb", "logger.wandb.mode": "offline"}
    sent = of_run(str(folder), overrides)[0].logger["wandb"]
    assert sent.target.endswith(".WandbLogger")
    assert (sent.options["project"], sent.options["mode"]) == ("rectifiers", "offline")


CONTROL = "\x1b]0;title\x07\x1b[31m\nerror: </b><script>"  # of a terminal, and of a page
BRACKETS = 200_000


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda text: f"{text}\nseed: 0\n", "a key stands twice"),
        (lambda text: f"a: &a [1]\nb: *a\n{text}", "an alias in line 2"),
        (lambda text: "!!python/object/apply:os.system ['touch MARKER']", "a tag in line 1"),
        (lambda text: f"a: {'[' * BRACKETS}{']' * BRACKETS}\n{text}", "it is nested too deeply"),
        (lambda text: text + "#" * 2**24, "it is larger than 16,777,216 bytes"),
        (lambda text: text.encode() + b"\xff\n", "unacceptable character"),
        (lambda text: "data: {root: '${oc.env:SECRET}'}", "is a reference, and not a value"),
        (lambda text: "data: {root: [1]}", "is no folder here"),
    ],
)
def test_configuration_must_be_plain_data(
    read, folder, marker, monkeypatch, content, sentence
) -> None:
    """It is asked for the folder, the size and the test scales of the data alone."""
    monkeypatch.setenv("SECRET", "5eCr37")
    text = content((folder / "config.yaml").read_text())
    text = text.replace("MARKER", str(marker)).encode() if isinstance(text, str) else text
    (folder / "config.yaml").write_bytes(text)
    line = refusal(read(f"run={folder}"))
    assert sentence in line
    assert "5eCr37" not in line


def test_science_holds_no_reference(read, finished, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SECRET", "5eCr37")
    for key in ("precision", "extra"):
        change = {key: "${oc.env:SECRET}"}
        folder = foreign(
            finished, tmp_path, lambda science, new=change: science["trainer"].update(new)
        )  # type: ignore[misc]
        line = refusal(read(f"run={folder}"))
        assert "is a reference, and not a value" in line
        assert "5eCr37" not in line


@pytest.mark.parametrize("name", ["config.yaml", "record.json"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_link_or_pipe_is_unread(read, folder, tmp_path, name, kind) -> None:
    (folder / name).rename(tmp_path / name)
    if kind == "link":
        (folder / name).symlink_to(tmp_path / name)
    else:
        os.mkfifo(folder / name)
    wanted = ("symbolic link",) if kind == "link" else ("no regular", "not a finished run")
    assert any(words in refusal(read(f"run={folder}")) for words in wanted)


def test_run_does_not_say_where_to_write(call: Call, folder: Path, tmp_path: Path) -> None:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config |= dict.fromkeys(("cache_dir", "runs_dir"), str(tmp_path / "elsewhere"))
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    options = ("evaluation=ten_view", f"cache_dir={tmp_path}/cache")
    done = call("scripts/evaluate.py", f"run={folder}", *options)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "cache").glob("statistics/*.pt"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("link", "arguments"),
    [
        ("runs/{run}/scores", "run=runs/{run} evaluation.keep_scores=true"),
        ("runs/{run}/scores", "run=runs/{run}"),
        ("runs/{run}/wandb", "run=runs/{run} logger=wandb logger.wandb.mode=offline"),
        ("runs/{run}/tensorboard", "run=runs/{run} logger=tensorboard"),
        ("runs/{run}/checkpoints", "run=runs/{run}"),
        ("weights.pt.tested", f"run=weights.pt {' '.join(TINY)}"),
        pytest.param(
            "runs/{both}", "run=[runs/{run},runs/{other}]", marks=pytest.mark.process
        ),  # an ensemble's
    ],
)
def test_linked_folder_is_not_written_to(
    call, finished, folder, tmp_path, link: str, arguments: str
) -> None:
    other = foreign(finished, tmp_path, lambda science: science.update(seed=1))
    both = run_id({"members": sorted((folder.name, other.name))})
    names = {"run": folder.name, "other": other.name, "both": both}
    (tmp_path / "weights.pt").touch()
    victim = tmp_path / "victim"
    (victim / "run-1").mkdir(parents=True)
    (victim / "ten_view.npz").write_text("words")
    place = tmp_path / link.format(**names)
    place.symlink_to(victim, target_is_directory=True)
    typed = [*arguments.format(**names).split(), "evaluation=ten_view"]
    done = call("scripts/evaluate.py", *typed, cwd=tmp_path)
    assert done.returncode == 1
    assert f"{place.name} is a symbolic link, which is not followed" in done.stderr
    assert sorted(path.name for path in victim.iterdir()) == ["run-1", "ten_view.npz"]


@pytest.mark.parametrize("link", ["{run}", "replaced", "{run}/checkpoints", ".locks"])
def test_training_follows_no_link(tmp_path: Path, link: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    place = tmp_path / link.format(run="0123456789ab")
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(victim, target_is_directory=True)
    folder = tmp_path / "0123456789ab"
    folder.mkdir(exist_ok=True)
    (folder / "record.json").touch()
    with refused("is a symbolic link, which is not followed"), run_lock(folder):
        begin(folder, rerun=True)
    assert {path.name for path in victim.iterdir()} <= {"record.json"}


def test_half_written_file_is_no_link(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "victim").write_text("words")
    part = tmp_path / f"record.json.{socket.gethostname()}.{os.getpid()}.part"
    part.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link"):
        write_text(tmp_path / "record.json", "{}")
    assert (tmp_path / "victim").read_text() == "words"


def test_choice_in_a_record_is_no_path(call: Call, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words.yaml").write_text("words")
    record = json.loads((folder / "record.json").read_text())
    record["choices"]["activation"] = os.path.relpath(tmp_path / "words", CONF / "activation")
    (folder / "record.json").write_text(json.dumps(record))
    done = call("scripts/evaluate.py", f"run={folder}", "evaluation=ten_view")
    assert done.returncode == 0, done.stderr


def with_words(record: dict[str, Any]) -> None:
    """Put hostile words wherever a record holds any."""
    record["choices"] |= {"activation": CONTROL, "model": CONTROL}
    record["provenance"]["machine"]["cpu"] = CONTROL
    record["protocols"][CONTROL] = record["protocols"]["center"]
    record["slopes"] = {CONTROL: record["slopes"]["fc_1"]}


def test_words_of_a_run_are_text(call: Call, folder: Path, tmp_path: Path) -> None:
    record = json.loads((folder / "record.json").read_text())
    with_words(record)
    bad = tmp_path / "runs" / CONTROL.replace("/", "")
    bad.mkdir()
    (bad / "record.json").write_text(json.dumps({CONTROL: 1}))
    (folder / "record.json").write_text(json.dumps(record))
    for program, *arguments in (
        ("scripts/evaluate.py", f"run={folder}", "evaluation=ten_view"),
        ("scripts/evaluate.py", f"run={bad}", "evaluation=ten_view"),
        ("scripts/report.py", "show", f"--runs={tmp_path}/runs"),
        ("scripts/report.py", "diff", str(folder), "0a3802792865", f"--runs={tmp_path}/runs"),
        (
            "train.py",
            *TINY,
            "evaluation=center",
            "trainer.max_epochs=1",
            f"runs_dir={tmp_path}/runs",
        ),
    ):
        done = call(program, *arguments)
        assert "\N{REPLACEMENT CHARACTER}" in done.stdout + done.stderr
        assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)
        assert "\nerror: <" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda science: science["trainer"].update(precision=CONTROL),
        lambda science: science.update({CONTROL: 1}),
        lambda science: science["activation"].update(_target_=CONTROL),
        None,  # in config.yaml
    ],
)
def test_words_of_a_configuration_are_text(read, finished, tmp_path, change) -> None:
    folder = foreign(finished, tmp_path, change or (lambda science: None))
    if change is None:
        rewrite_config(folder, root=CONTROL)
    assert refusal(read(f"run={folder}")).isprintable()


@pytest.fixture
def downloads(monkeypatch) -> list[str]:
    """What was to be downloaded; nothing is."""
    urls: list[str] = []

    def refuse(url: str, *_: Any, **__: Any) -> None:
        urls.append(url)
        raise URLError("no network in tests")

    monkeypatch.setattr(cifar10, "download_url", refuse)
    monkeypatch.setattr(imagenette, "download_and_extract_archive", refuse)
    return urls


def of_source(finished: Outcome, place: Path, name: str, **data: Any) -> Path:
    """A copy of a run whose data are of another source of this package, from the folder and with
    the settings that its config.yaml names."""

    def change(science: dict[str, Any]) -> None:
        del science["data"]["val_fraction"], science["data"]["split_seed"]
        science["data"]["_target_"] = f"rectifiers.data.{name}"

    folder = foreign(finished, place, change)
    rewrite_config(folder, **data)
    return folder


WRITING = ("cifar10.cifar10", "imagenette.imagenette")


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(
    ("source", "option"),
    [*((source, "digits") for source in WRITING), (WRITING[0], "cifar10"), (WRITING[0], None)],
)
def test_run_names_no_place_for_data(
    read, finished, downloads, tmp_path, source, is_there, option
) -> None:
    place = tmp_path / "named"
    if is_there:
        place.mkdir()
    folder = of_source(finished, tmp_path, source, root=str(place), download=True)
    record = json.loads((folder / "record.json").read_text())
    record["choices"]["data"] = option  # whatever it says the data were
    (folder / "record.json").write_text(json.dumps(record))
    assert "data." in refusal(read(f"run={folder}"))
    assert downloads == []
    assert (list(place.iterdir()) if is_there else place.exists()) in ([], False)


@pytest.mark.parametrize("source", WRITING)
def test_command_line_names_the_place_for_data(call, finished, downloads, tmp_path, source) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    folder = of_source(finished, tmp_path, source, root=str(theirs), download=True)
    places = (f"run={folder}", f"cache_dir={tmp_path}/cache")
    arguments = (*places, "evaluation=ten_view", "data.download=true")
    done = call("scripts/evaluate.py", *arguments)
    assert done.stderr.startswith("error: data.download=true is not usable")
    assert downloads == []
    done = call("scripts/evaluate.py", *arguments, f"data.root={ours}")
    assert downloads, done.stderr
    assert not list(theirs.iterdir())


def test_folder_need_not_be_named_again(call: Call, tmp_path: Path) -> None:
    write_folder(tmp_path / "photos")
    options = ("trainer.max_epochs=1", "data.batch_size=4", "evaluation=center")
    data = ("data=folder", f"data.root={tmp_path}/photos")
    config = compose_config(*TINY, *data, *options, *places(tmp_path))
    folder = train(config, {"data": "folder"}).path.parent
    done = call("scripts/evaluate.py", f"run={folder}", "evaluation=ten_view")
    assert done.returncode == 0, done.stderr


LEAVING = r"""init.bias=${oc.env:SECRET} init.bias=$\{oc.env:SECRET\} init.bias=${seed}
+activation.beta=${seed} model.hidden=[${oc.env:SECRET}] activation=../../../evil
activation=/tmp/evil activation=[relu,../evil] activation='../evil'
activation={_target_:os.system} activation=relu.yaml activation/../../evil=relu
experiment/claim=xavier14 +activation=relu +activation@init=relu activation@init=relu
++activation.beta=2 +/activation=relu ~activation ~/activation=relu hydra.run.dir=/tmp
+hydra.searchpath=[file:///tmp] hydra/launcher=joblib --config-dir=/tmp activation"""


@pytest.mark.parametrize("override", [*LEAVING.split(), ""])
def test_override_cannot_leave_the_configuration(override: str) -> None:
    with refused(f"^{re.escape(f'entry.json: {override}')} "):
        check_overrides(["seed=1", override], Path("entry.json"))


def test_plain_overrides_are_accepted() -> None:
    options = ["activation=relu", "experiment=table2/prelu", "evaluation=[center,ten_view]"]
    settings = ["activation._target_=torch.nn.Softplus", "+activation.beta=2", "callbacks=null"]
    places = ["runs_dir='/tmp/some where/runs'", "data.root='../data'", "optim.lr=1e-2"]
    check_overrides([*options, *settings, *places], Path("entry.json"))


RECORDS: dict[str, Callable[[str], str | bytes]] = {  # more in tests/runs/test_record.py
    "a name that is a path": lambda text: text.replace('"run": "', '"run": "../../', 1),
    "half a character": lambda text: text.encode() + b"\xff",
    "half a pair": lambda text: text.replace('"warnings": [', '"warnings": ["\\ud800"', 1),
}


@pytest.mark.process
def test_bad_records_are_left_out(call: Call, finished: Outcome, tmp_path: Path) -> None:
    """Every command that reads many records, on a good run among bad ones."""
    runs, good = tmp_path / "runs", finished.record.run
    paths = [runs / name / "record.json" for name in (*RECORDS, "a link", "a pipe", "a folder")]
    for path in paths:
        path.parent.mkdir(parents=True)
    for path, change in zip(paths, RECORDS.values(), strict=False):
        content = change(finished.path.read_text())
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    paths[-3].symlink_to(shutil.copy(finished.path, tmp_path / "victim.json"))
    os.mkfifo(paths[-2])
    paths[-1].mkdir()
    shutil.copytree(finished.path.parent, runs / good)

    program = tmp_path / "scripts" / "report.py"  # which writes beside itself
    program.parent.mkdir()
    shutil.copy(ROOT / "scripts" / "report.py", program)
    for name in ("records", "claims"):
        (tmp_path / "results" / name).mkdir(parents=True)
    for command in ("show", "collect"):
        done = call(str(program), command, f"--runs={runs}", "--json")
        assert done.returncode == 0, done.stderr
        for path in paths:
            (line,) = [line for line in done.stderr.splitlines() if str(path) in line]
            assert line.startswith("left out")
            assert "is not a usable record (" in line
        if command == "show":
            assert [row["run"] for row in json.loads(done.stdout)] == [good]
    # one by one they are one sentence
    done = call(str(program), "diff", str(paths[0]), good, f"--runs={runs}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {paths[0]} is not a usable record (")


def bomb(path: Path) -> None:
    """A checkpoint whose parts unpack to a thousand times their size."""
    with zipfile.ZipFile(path) as parts:
        content = {part.filename: parts.read(part) for part in parts.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as parts:
        for name, data in content.items():
            parts.writestr(name, data)
        for part in parts.infolist():
            part.external_attr = 0  # which torch's have not either


class Touches:
    """Pickled, it makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def damage(path: Path, content: str, marker: Path) -> None:
    """Put something else in the place of a file that torch wrote."""
    if content == "bomb":
        bomb(path)
    elif content == "pickle":
        path.write_bytes(pickle.dumps(Touches(marker)))
    elif content == "hidden pickle":
        torch.save(torch.load(path, weights_only=True) | {"hidden": Touches(marker)}, path)
    elif content == "other keys":
        torch.save({"state_dict": 1, "rectifiers": []}, path)
    elif content == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif content == "link":
        path.symlink_to(path.rename(path.with_name("elsewhere")))
    else:
        path.write_text(content)


@pytest.mark.parametrize(
    "content", ["pickle", "hidden pickle", "bomb", "pipe", "link", "words", "", "other keys"]
)
def test_false_checkpoint_is_refused(read: Call, folder: Path, marker: Path, content: str) -> None:
    path = folder / "last.ckpt"
    damage(path, content, marker)
    done = read(f"run={folder}")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"{path} cannot be read (" in last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", ["pickle", "hidden pickle", "bomb", "words", ""])
def test_false_weights_are_refused(call, folder, marker, tmp_path, content) -> None:
    state = torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]
    torch.save(state, tmp_path / "weights.pt")
    (tmp_path / "link.pt").symlink_to("weights.pt")  # which the user chose
    command = ("scripts/evaluate.py", f"run={tmp_path}/link.pt", *TINY, "evaluation=center")
    assert call(*command).returncode == 0
    damage(tmp_path / "weights.pt", content, marker)
    assert refusal(call(*command)).startswith(f"error: {tmp_path}/link.pt cannot be read (")


@pytest.mark.parametrize("path", ["{run}/../victim", "local://{victim}", "{victim}", "link/victim"])
def test_checkpoint_names_nothing_to_remove(tmp_path: Path, monkeypatch, path: str) -> None:
    """ModelCheckpoint goes on from the state that a checkpoint holds, and removes what was best."""
    victim, run = tmp_path / "victim", tmp_path / "run"
    run.mkdir()
    victim.write_text("words")
    monkeypatch.chdir(run)
    (run / "link").symlink_to(tmp_path)
    (run / "old.ckpt").touch()
    for named in (path.format(run=run, victim=victim), str(run / "old.ckpt")):
        AtomicCheckpointIO(run).remove_checkpoint(named)
    assert victim.read_text() == "words"
    assert not (run / "old.ckpt").exists()


@pytest.mark.parametrize(
    ("group", "target", "is_usable"),
    [
        ("activation", "rectifiers.activations.relu", True),
        ("optim", "torch.optim.Adam", True),
        ("scheduler", "torch.optim.lr_scheduler.StepLR", True),
        ("activation", "torch.nn.GELU", True),
        ("optim", "torch.nn.GELU", False),
        ("optim", "torch.optim.lr_scheduler.StepLR", False),
        ("optim", "torch.hub.load", False),
        ("optim", "torch.hub.SGD", False),
        ("scheduler", "torch.load", False),
        ("scheduler", "rectifiers.tracking.wandb_logger.WandbLogger", False),
    ],
)
def test_torch_classes_fit_their_group_alone(group: str, target: str, is_usable: bool) -> None:
    config = {group: {"_target_": target}}
    if is_usable:
        check_targets(config, Path("record.json"), ())
    else:
        with refused(r"is no function that conf/"):
            check_targets(config, Path("record.json"), ())
