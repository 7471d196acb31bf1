"""What lies in a run's folder cannot lead W&B's client elsewhere: the key goes to the user's own
server alone."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from conftest import ROOT
from rectifiers.runs import record as records
from tracking.stub import Stub, serving

pytestmark = pytest.mark.process


@pytest.fixture
def sync(call) -> Callable[..., CompletedProcess[str]]:
    return partial(call, "scripts/report.py", "sync")


@pytest.fixture
def elsewhere() -> Iterator[Stub]:
    """Another server, which must not be asked."""
    with serving() as stub:
        yield stub
        assert stub.calls == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder that W&B lacks."""
    path = sorted((ROOT / "results" / "records").glob("*.json"))[0]
    folder = tmp_path / "runs" / records.load(path).run
    (folder / "wandb").mkdir(parents=True)
    (folder / "record.json").write_bytes(path.read_bytes())
    (folder / "config.yaml").write_text(yaml.safe_dump({"logger": {"name": "wandb"}}))
    return folder


@pytest.mark.parametrize(
    "address",
    [
        {"id": "ID", "project": "ours", "settings": {"base_url": "URL"}},
        {"id": "ID", "project": "ours", "base_url": "URL"},
        {"id": "ID", "project": "ours", "dir": "/", "mode": "online", "config": "URL"},
        {"id": "ID", "project": "URL"},
        {"id": "../../x", "project": "ours", "entity": "URL/x"},
        {"id": ["ID"], "project": {"ours": 1}},
        [],
        "[" * 200_000,
    ],
    ids=range(8),
)
def test_a_noted_address_is_names_alone(
    sync, folder: Path, server: Stub, elsewhere: Stub, address: Any
) -> None:
    text = address if isinstance(address, str) else json.dumps(address)
    (folder / "wandb" / "address.json").write_text(
        text.replace("URL", elsewhere.url).replace("ID", folder.name)
    )
    settings = f"[default]\nbase_url = {elsewhere.url}\nroot_dir = /\n"
    (folder / "wandb" / "settings").write_text(
        settings
    )  # the client's own file, in the place where it looks for one
    done = sync(f"--runs={folder.parent}")
    assert done.returncode == 0, done.stderr
    assert list(server.runs) == [folder.name]
    assert server.runs[folder.name]["project"] == "rectifiers"


@pytest.mark.parametrize(
    "logger",
    [
        {"name": "wandb", "base_url": "URL"},
        {"name": "wandb", "project": "URL"},
        {"name": "wandb", "mode": ["online"]},
        {"name": "wandb", "finish_timeout_s": float("nan")},
        "wandb",
        None,
    ],
    ids=range(6),
)
def test_settings_that_name_more_than_the_logger_has_send_nothing(
    sync, folder: Path, server: Stub, elsewhere: Stub, logger: Any
) -> None:
    text = yaml.safe_dump({"logger": logger}).replace("URL", elsewhere.url)
    (folder / "config.yaml").write_text(text)
    done = sync(f"--runs={folder.parent}")
    assert done.returncode == 1
    assert done.stdout == "0 sent, 1 not sent\n"
    assert len(done.stderr.splitlines()) == 1
    assert server.calls == []


def test_a_client_folder_that_is_a_symbolic_link_is_not_followed(
    sync, folder: Path, server: Stub, tmp_path: Path
) -> None:
    """The client's older files are removed once the server has all: those elsewhere are not the
    run's."""
    (folder / "wandb").rmdir()
    victim = tmp_path / "victim" / "my-run-1" / "words"
    victim.parent.mkdir(parents=True)
    victim.write_text("words")
    (folder / "wandb").symlink_to(tmp_path / "victim", target_is_directory=True)
    done = sync(f"--runs={folder.parent}")
    assert (
        done.stderr == f"{folder.name}: {folder}/wandb is a symbolic link, which is not followed\n"
    )
    assert victim.read_text() == "words"
    assert server.calls == []
