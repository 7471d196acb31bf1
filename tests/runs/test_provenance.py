import os
import subprocess

from rectifiers.runs.provenance import (
    code_fingerprint,
    committed_file,
    has_commit,
    is_changed,
    provenance,
)
from rectifiers.runtime.files import CHECKOUT, git


def test_no_secret_path_host_or_user_is_recorded(monkeypatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k3y-of-somebody")
    text = provenance("data", "statistics", "cpu", 1).model_dump_json()
    assert "k3y-of-somebody" not in text
    assert os.uname().nodename not in text
    assert os.getcwd() not in text


def test_folder_without_checkout_has_no_sha(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("rectifiers.runs.provenance.CHECKOUT", tmp_path)
    recorded = provenance("data", "statistics", "cpu", 1)
    assert (recorded.git_sha, recorded.git_dirty, recorded.lock) == (None, None, None)


def test_results_do_not_change_the_code(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("rectifiers.runs.provenance.CHECKOUT", tmp_path)
    assert is_changed() is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for path, changed in (("results/benchmark/mish.json", False), ("src/results/a.py", True)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("{}")
        assert is_changed() is changed


def test_clone_without_history_cannot_deny_a_commit(monkeypatch, tmp_path) -> None:
    whole, shallow = tmp_path / "whole", tmp_path / "shallow"
    git = ["git", "-C", str(whole), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", str(whole)], check=True)
    shas = []
    for number in range(2):
        commit = [*git, "commit", "-q", "--allow-empty", "-m", str(number)]
        subprocess.run(commit, check=True)
        sha = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        shas.append(sha.stdout.strip())
    clone = ["git", "clone", "-q", "--depth=1", whole.as_uri(), str(shallow)]
    subprocess.run(clone, check=True)
    for checkout, known in (
        (whole, [True, True, False]),
        (shallow, [None] * 3),
        (None, [None] * 3),
    ):
        monkeypatch.setattr("rectifiers.runs.provenance.CHECKOUT", checkout)
        has_commit.cache_clear()
        assert [has_commit(sha[:12]) for sha in (*shas, "c0de" * 10)] == known
    has_commit.cache_clear()


def test_a_hostile_commit_shifts_no_answer() -> None:
    head = git("rev-parse", "HEAD", at=CHECKOUT)
    assert committed_file("x\ny", "README.md") is None
    assert committed_file("HEAD", "README.md") is None  # no commit, but any
    assert committed_file(head, "CITATION.cff").startswith("cff-version")


def test_the_fingerprint_follows_the_code(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("rectifiers.runs.provenance.PACKAGE", tmp_path)
    (tmp_path / "a.py").write_text("x = 1")
    before = code_fingerprint()
    (tmp_path / "a.py").write_text("x = 2")
    assert code_fingerprint() != before
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    (tmp_path / "b.py").write_text("x = 1")
    assert code_fingerprint() != before
