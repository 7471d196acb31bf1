"""A browser, and a page to open in it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from made_up import altered
from pages import CHROMIUM, CLASSES, FLAGS, PRELU, RECORDS, RELU
from rectifiers.evaluation.scores import Scores, scores_path, write
from rectifiers.results.listing import gather
from rectifiers.results.page.render import page as make_page
from rectifiers.results.tables import load
from rectifiers.runs import record as records


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        expect.set_options(timeout=60_000)  # other work may have the cores
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the committed records, and of copies of other images that fill a second page of
    the list.

    Two are runs that are here, with scores that are made to fit.
    """
    folder = tmp_path_factory.mktemp("page")
    labels = np.arange(450) % 10
    for name in (PRELU, RELU):
        record = records.load(RECORDS / f"{name}.json")
        right = np.array(record.protocols["ten_view"].is_correct())
        scores = np.eye(10, dtype=np.float32)[np.where(right, labels, (labels + 1) % 10)]
        kept = Scores(scores, labels, record.provenance.data, "{}")
        write(scores_path(folder / "runs" / name, "ten_view"), kept)
        record = altered(
            record, {"protocols.ten_view.scores": kept.digest(), "class_names": CLASSES}
        )
        records.write(folder / "runs" / name / "record.json", record)
    for each in gather(RECORDS):
        if each.record.choices["experiment"].startswith("table2/"):
            copy = altered(
                each.record, {"science.seed": each.record.seed + 5, "choices.data": "fashion_mnist"}
            )
            records.write(folder / "copies" / f"{copy.run}.json", copy)
    path = folder / "results" / "report" / "index.html"
    path.parent.mkdir(parents=True)
    committed = (each for each in gather(RECORDS) if each.record.run not in (PRELU, RELU))
    found = [*gather(folder / "runs"), *committed, *gather(folder / "copies")]
    path.write_text(make_page(found, load(RECORDS), path))
    return path
