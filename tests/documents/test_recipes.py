"""The documents' commands and recipes work as they are printed: README and docs/."""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, compose_config

DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
}
TEXT = "\n".join(DOCUMENTS.values())
COMMANDS = sorted(
    set(re.findall(r"^\$ python train\.py (.*?)(?: +#.*)?$", TEXT, flags=re.MULTILINE))
)
WEIGHTS = [command for command in COMMANDS if command.startswith("init.from_weights=")]
SWEEPS = [command for command in COMMANDS if "--multirun" in command]
FILES = re.findall(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```$", flags=re.MULTILINE | re.DOTALL)


def test_named_make_targets_exist() -> None:
    named = TEXT + "".join(path.read_text() for path in ROOT.glob("*.md"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    used = set(re.findall(r"`make\s([a-z-]+)`", named)) | set(
        re.findall(r"^(?:\$ )?make ([a-z-]+)", named, re.MULTILINE)
    )
    assert len(used) > 8
    assert used <= targets


def test_settings_that_are_not_run_here_exist() -> None:
    blocks = "\n".join(BLOCK.findall(TEXT)).replace("\\\n", " ")
    shown = re.findall(
        r"^(?!\$ python).*train\.(?:py|sbatch) (\w+=.*)$", blocks, flags=re.MULTILINE
    )
    assert len(shown) > 5
    for command in set(shown):
        words = [
            word
            for word in shlex.split(command, comments=True)
            if "=" in word and "<" not in word and not word.endswith("...")
        ]
        compose_config(*words)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to which the files of the recipes have been added, as a reader
    would."""
    place = tmp_path_factory.mktemp("copy")
    for name in ("src", "conf", "train.py"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, place / name)
    assert FILES
    for name, content in FILES:
        path = place / name
        path.write_text((path.read_text() + "\n\n" if path.exists() else "") + content)
    return place


@pytest.mark.process
@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in (*SWEEPS, *WEIGHTS)])
def test_printed_commands_and_recipes_run(copy: Path, command: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "train.py",
            *shlex.split(command),
            "trainer.max_epochs=1",
            *([] if "evaluation=" in command else ["evaluation=center"]),
            *(["hydra.sweeper.n_trials=2"] if "hparams_search=" in command else []),
        ],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    written = [line for line in done.stdout.splitlines() if line.endswith("record.json")]
    record = json.loads((copy / written[-1]).read_text())
    if "wave" in command:
        # E[(z + a sin z)^2] = 1 + 2 a E[z sin z] + a^2 E[sin^2 z]
        second = 1 + 2 * 0.5 * math.exp(-0.5) + 0.25 * (1 - math.exp(-2)) / 2
        assert record["init_report"][1]["forward_gain"] == pytest.approx(second**-0.5, rel=1e-6)
    if "laplace" in command:
        rules = {entry["layer"]: entry["rule"] for entry in record["init_report"]}
        convolutions = {rule for layer, rule in rules.items() if layer.startswith("conv")}
        assert convolutions == {"laplace"}  # the fully connected layers start small
        for entry in record["init_report"]:
            assert entry["std_drawn"] == pytest.approx(entry["std_asked"], rel=0.15)
    if "five_view" in command:  # of 36 px, crops of 32
        assert (
            record["protocols"]["five_view"]["num_images"]
            == record["protocols"]["center"]["num_images"]
        )
    if "small6" in command:
        assert record["network"]["depth"] == 6


@pytest.mark.process
def test_weights_from_elsewhere_are_tested_and_trained_on(copy: Path) -> None:
    section = DOCUMENTS["docs/how-to/examine.md"].partition("### Test weights from elsewhere")[2]
    printed = re.findall(r"^\$ python (.*)$", section, flags=re.MULTILINE)[:3]
    assert [command.split()[0] for command in printed] == [
        "my_network.py",
        "scripts/evaluate.py",
        "train.py",
    ]
    shutil.copytree(ROOT / "scripts", copy / "scripts", dirs_exist_ok=True)
    outputs = []
    for command in printed:
        more = ["trainer.max_epochs=1", "evaluation=center"] if command.startswith("train") else []
        done = subprocess.run(
            [sys.executable, *shlex.split(command), *more],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert "450 of test" in outputs[1]
    record = json.loads((copy / outputs[2].splitlines()[-1]).read_text())
    assert {entry["rule"] for entry in record["init_report"]} == {"weights"}
