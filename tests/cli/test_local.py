"""`conf/local`: a machine's own defaults, which git ignores."""

import shutil
from pathlib import Path

import pytest

from conftest import ROOT
from rectifiers.cli import composition
from rectifiers.cli.composition import compose_job, compose_with_choices, composed
from rectifiers.runs.identity import run_id, science
from rectifiers.runtime.files import git
from rectifiers.training.recording import without_places
from refusals import refused

MACHINE = """# @package _global_
defaults:
  - override /logger: tensorboard
threads: 3
timeout_s: 55
"""


@pytest.fixture
def local(tmp_path: Path, monkeypatch) -> Path:
    """The folder `local` of a copy of conf/, which holds a default for this machine."""
    conf = tmp_path / "conf"
    shutil.copytree(composition.CONF, conf, ignore=shutil.ignore_patterns("local"))
    (conf / "local").mkdir()
    (conf / "local" / "default.yaml").write_text(MACHINE)
    monkeypatch.setattr(composition, "CONF", conf)
    monkeypatch.delenv("RECTIFIERS_LOCAL")
    return conf / "local"


def id_of(*overrides: str) -> str:
    return run_id(science(composed(overrides)))


def test_machine_defaults_change_no_run_id(local: Path) -> None:
    config = composed([])
    assert (config.threads, config.timeout_s, list(config.logger)) == (3, 55, ["tensorboard"])
    assert id_of() == id_of("local=null")
    assert id_of("data=digits8", "model=mlp") == id_of("data=digits8", "model=mlp", "local=null")


def test_the_command_line_overrides_machine_defaults(local: Path) -> None:
    config = composed(["threads=1", "logger=csv"])
    assert (config.threads, config.timeout_s, list(config.logger)) == (1, 55, ["csv"])
    assert composed(["local=null"]).threads is None


@pytest.mark.parametrize("section", ["optim: {lr: 0.003}", "seed: 4"])
def test_a_science_key_makes_another_run(section: str, local: Path) -> None:
    (local / "other.yaml").write_text(f"# @package _global_\n{section}\n")
    assert id_of("local=other") != id_of("local=null")


@pytest.mark.parametrize("text", ["threads: [1", "threads: 1\n\tseed: 2", "seed: 1\nseed: 2"])
@pytest.mark.parametrize("place", ["local/default", "experiment/mine"])
def test_a_file_that_is_no_yaml_is_named(place: str, text: str, local: Path) -> None:
    (local.parent / f"{place}.yaml").write_text(f"# @package _global_\n{text}\n")
    with refused(rf"not YAML.*{place}\.yaml.*line"):
        composed(["experiment=mine"] if "mine" in place else [])


@pytest.mark.parametrize("place", ["local/default", "experiment/mine", "debug/mine"])
def test_a_file_without_a_package_says_so(place: str, local: Path) -> None:
    (local.parent / f"{place}.yaml").write_text("threads: 1\n")
    group, _, option = place.partition("/")
    with refused(f"^{group} .*# @package _global_"):
        composed([f"{group}={option}"])


def test_claims_and_benchmark_leave_machine_defaults_out(local: Path) -> None:
    (local / "default.yaml").write_text("# @package _global_\noptim: {lr: 0.003}\nthreads: 3\n")
    assert composed([]).optim.lr == 0.003
    for overrides in ((), ("seed=3",), ("data=digits8", "model=mlp")):
        config = compose_job(overrides)[0]
        assert (config.optim.lr, config.threads) == (0.01, None)


def test_environment_leaves_machine_defaults_out(local: Path, monkeypatch) -> None:
    monkeypatch.setenv("RECTIFIERS_LOCAL", "null")
    assert composed([]).threads is None


def test_a_record_names_no_machine_defaults(local: Path) -> None:
    assert "local" not in compose_with_choices(["local=default"])[1]
    assert without_places(["local=default", "seed=1"]) == ["seed=1"]


@pytest.mark.process
def test_git_ignores_machine_defaults() -> None:
    assert git("check-ignore", "conf/local/default.yaml", at=ROOT)
