"""A run's tables on the terminal."""

import io

import pytest
from rich.console import Console

from made_up import training
from rectifiers.results.run_tables import print_record
from rectifiers.results.tables import table_1_slopes

SPREAD = {"mean": 0.25, "std": 0.125, "min": -0.5, "max": 0.75, "channels": 32}


def printed(**fields: object) -> str:
    text = io.StringIO()
    print_record(training(**fields), Console(file=text, width=100))
    return text.getvalue()


def test_slopes_of_the_papers_layers_stand_beside_the_papers() -> None:
    papers = table_1_slopes(shared=False)
    text = printed(slopes=dict.fromkeys(papers, SPREAD))
    assert "paper's" in text
    assert f"{papers['conv1']:.3f}" in text


def test_slopes_of_other_layers_stand_alone() -> None:
    """Also where single layers have names of the paper's."""
    for layers in (["fc_1", "fc_2"], ["conv1", "fc1"], ["fc1", "fc2"]):
        text = printed(slopes=dict.fromkeys(layers, SPREAD))
        assert "0.250" in text
        assert "paper's" not in text
        assert "Table 1" not in text


@pytest.mark.parametrize(
    ("model", "is_papers"),
    [("small14", True), ("small14_32", True), ("mlp", False), ("resnet20", False), (None, False)],
)
def test_only_the_papers_network_names_the_paper(model: str | None, is_papers: bool) -> None:
    text = printed(choices={"model": model}, slopes={"fc_1": SPREAD})
    assert ("paper" in text) == is_papers


def test_learned_parameters_have_a_table() -> None:
    text = printed(activation_parameters={"fc_1/beta": SPREAD, "fc_2/beta": SPREAD})
    (line,) = [line for line in text.splitlines() if line.startswith("fc_2/beta")]
    assert line.split() == ["fc_2/beta", "0.25", "0.125", "-0.5", "0.75", "32"]
    assert "learned parameter" not in printed(slopes={"fc_1": SPREAD})
