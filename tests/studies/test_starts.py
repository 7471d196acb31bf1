"""The comparison of starts: every network trains from each, and its page follows from numbers."""

import sys

import pytest
import torch

from conftest import ROOT, load_script
from refusals import refused


@pytest.fixture
def starts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "studies")
    module = load_script("studies/starts")
    monkeypatch.setattr(module, "EARLY", 1)
    return module


class Random:
    """Examples of a network's shapes."""

    def __init__(self, module, name: str) -> None:
        generator = torch.Generator().manual_seed(0)
        if name == "gpt":
            tokens = torch.randint(256, (2, module.CONTEXT + 1), generator=generator)
            self.batch = tokens[:, :-1], tokens[:, 1:].flatten()
        else:
            images = torch.randn(4, 3, 32, 32, generator=generator)
            task = {"unet": module.denoise, "dcgan": module.reconstruct}.get(name, module.classify)
            self.batch = task(images, torch.arange(4), generator)

    def held_out(self):
        return self.batch

    def batches(self, seed: int):
        while True:
            yield self.batch


@pytest.mark.parametrize("name", ["gpt", "vit", "resnet", "unet", "dcgan"])
def test_networks_train_from_three_starts(starts, name: str) -> None:
    network, data = starts.NETWORKS[name], Random(starts, name)
    runs = [starts.losses(network, start, 1e-3, data, 0, 20) for start in network.starts().values()]
    assert all(end < starts.DIVERGED for _, end in runs)
    assert len(set(runs)) == 3, "every start is another one"


def test_grid_grows_until_the_best_rate_is_inside(starts, monkeypatch) -> None:
    best = 1e-2

    def losses(network, start, rate, data, seed, steps):
        return 0.0, abs(torch.tensor(rate / best).log().item())

    monkeypatch.setattr(starts, "losses", losses)
    means = starts.search(None, None, None)
    chosen = min(means, key=means.__getitem__)
    assert min(means) < chosen < max(means)
    assert chosen == pytest.approx(best)


def test_losses_are_compared_seed_by_seed(starts) -> None:
    page = load_script("studies/starts_page")
    ours, other = [(1.0, 0.5), (2.0, 1.5)], [(1.5, 0.5), (2.5, 1.5)]
    results = {
        label: {"search": {"0.001": 1.0}, "rate": 1e-3, "runs": runs}
        for label, runs in ((starts.DEFAULT, other), ("own", other), (starts.OURS, ours))
    }
    default, _, own = page.rows(results)
    assert default[3] == "+0.5 (+0.5 to +0.5)"
    assert default[5].startswith("+0 ")
    assert own[3] == own[5] == ""
    page = load_script("studies/starts_page").page
    assert "GPT" in page({"gpt": {"what": "a GPT", "starts": results}})


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_page_without_numbers_is_refused(starts, tmp_path, monkeypatch, capsys, options) -> None:
    page = load_script("studies/starts_page")
    monkeypatch.setattr(page, "NUMBERS", tmp_path / "starts.json")
    monkeypatch.setattr(sys, "argv", ["starts_page.py", *options])
    with pytest.raises(SystemExit):
        page.main()
    assert "run python studies/starts.py" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_text_that_is_missing_is_named(starts, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(starts, "TEXT", tmp_path / "text.txt")
    with refused(r"text\.txt is not there"):
        starts.Text()
