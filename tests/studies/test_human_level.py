"""The comparison with people follows from published counts."""

import sys
from types import ModuleType

import numpy as np
import pytest

from conftest import load_script
from rectifiers.results.statistics import rate_difference


@pytest.fixture
def human_level() -> ModuleType:
    return load_script("studies/human_level")


def test_published_p_follows_from_76_errors_alone(human_level) -> None:
    """Section 6.4.1 of the ILSVRC paper prints a one-sided p of 0.022 for annotator 1."""
    machine = human_level.GOOGLENET
    printed = {
        errors: round(rate_difference(errors, 1500, machine.errors, machine.images).p / 2, 3)
        for errors in range(70, 85)
        if round(100 * errors / 1500, 1) == human_level.PRINTED_PCT
    }
    assert [errors for errors, p in printed.items() if p == 0.022] == [human_level.ANNOTATOR.errors]
    assert len(printed) == 2


def test_counts_print_as_published(human_level) -> None:
    shown = {c.name: (round(100 * c.rate, 1), c.images) for c in human_level.SHOWN}
    assert list(shown.values()) == [(4.9, 100_000), (5.1, 1500), (12.0, 258), (6.8, 1500)]


@pytest.mark.parametrize(("difference", "disagreement"), [(0.05, 0.2), (0.02, 0.1)])
def test_planned_sample_has_its_power(human_level, difference, disagreement) -> None:
    """McNemar's test on 20,000 samples; their share is off by .015 once in ten million times."""
    images = human_level.paired_images(difference, disagreement)
    only_one = [(disagreement + difference) / 2, (disagreement - difference) / 2]
    draws = np.random.default_rng(0).multinomial(images, [*only_one, 1 - disagreement], 20_000)
    first, second = draws[:, 0], draws[:, 1]
    z = (first - second) / np.sqrt(first + second)
    assert (abs(z) > 1.959964).mean() == pytest.approx(human_level.POWER, abs=0.02)


def test_largest_disagreement_needs_all_images(human_level) -> None:
    most = human_level.largest_disagreement(0.002, 100_000)
    assert human_level.paired_images(0.002, most) <= 100_000
    assert human_level.paired_images(0.002, 1.001 * most) > 100_000


def test_stale_page_is_refused(human_level, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["human_level.py", "--check"])
    human_level.main()
    other = human_level.of_percent("annotator 1", "after practice", 5.0, 1500)
    monkeypatch.setattr(human_level, "ANNOTATOR", other)
    with pytest.raises(SystemExit) as left:
        human_level.main()
    assert left.value.code
