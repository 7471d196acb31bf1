import copy

import pytest
from rich.console import Console

from rectifiers.results.console import print_record

RECORD = {
    "run": "0123456789ab",
    "status": "finished",
    "diverged": None,
    "choices": {"model": "small14", "activation": "prelu", "init": "he", "data": "digits"},
    "codes": ["0123456789ab"],
    "provenance": {"machine": {"cpu": "a processor", "threads": 2, "device": "cpu"}},
    "science": {"seed": 3, "optim": {"epochs": 75}},
    "protocols": {
        "center": {"seen": 450, "top1_correct": 441, "top5_correct": 450, "top1_error_pct": 2.0, "top5_error_pct": 0.0}
    },
    "network": {
        "depth": 14, "input_px": 32, "parameters": 1100, "slopes": 100, "multiply_adds": 5318032,
    },
    "slopes": {
        "conv1": {"mean": 0.3, "std": 0.05, "least": 0.1, "most": 0.5, "channels": 16},
        "other": {"mean": 0.2, "std": 0.05, "least": 0.1, "most": 0.5, "channels": 16},
    },
    "drop_epochs": [30, 60],
    "epochs": 75,
    "train_images": 1347,
    "images_per_second": 2200.4,
    "wall_s": 48.2,
}  # fmt: skip


def printed(record: dict) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_record(record, console)
    return console.export_text()


def row(text: str, first: str) -> list[str]:
    line = next(line for line in text.splitlines() if f"│ {first} " in line)
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_every_number_stands_with_its_n_interval_and_the_papers_beside_it() -> None:
    text = printed(RECORD)
    assert row(text, "center") == ["center", "2.00", "1.06 to 3.76", "0.00", "450"]
    assert row(text, "conv1") == ["conv1", "0.300", "0.050", "0.596"]
    assert row(text, "other") == ["other", "0.200", "0.050", "-"]
    assert "1,000 parameters + 100 slopes" in text
    assert "5,318,032 multiply-adds" in text
    assert "75 of 75 epochs of 1,347 images (the paper: 75 of ImageNet)" in text
    assert "dropped after epoch: 30, 60" in text
    assert "2,200 training images a second" in text


def test_shared_slopes_stand_beside_the_papers_shared_column() -> None:
    record = copy.deepcopy(RECORD)
    for slope in record["slopes"].values():
        slope["channels"] = 1
    assert row(printed(record), "conv1") == ["conv1", "0.300", "0.681"]


@pytest.mark.parametrize("missing", ["top5", "slopes"])
def test_what_is_not_there_is_not_made_up(missing: str) -> None:
    record = copy.deepcopy(RECORD)
    if missing == "top5":
        record["protocols"]["center"]["top5_error_pct"] = None
        assert row(printed(record), "center")[3] == "-"
    else:
        record["slopes"] = {}
        assert "conv1" not in printed(record)


def test_a_run_is_printed_with_its_code_and_machine() -> None:
    assert "code 0123456789ab on a processor, 2 threads\n" in printed(RECORD)
    machine = {"cpu": "a processor", "threads": 1, "device": "NVIDIA H100"}
    restarted = RECORD | {"codes": ["0123456789ab", "ba9876543210"], "provenance": {"machine": machine}}
    assert "code 0123456789ab+ba9876543210 on NVIDIA H100, 1 thread\n" in printed(restarted)


def test_a_diverged_run_says_where() -> None:
    record = {**RECORD, "status": "diverged", "diverged": {"step": 7, "layer": "trunk.conv2_1"}, "protocols": {},
              "slopes": {}, "images_per_second": None}  # fmt: skip
    assert "diverged at step 7, first seen at trunk.conv2_1" in printed(record)
