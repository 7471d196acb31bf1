import re

from rich.console import Console

from made_up import NETWORK, SCIENCE, result, training
from rectifiers.results.console import print_record
from rectifiers.runs.record import Record

SLOPE = {"std": 0.05, "min": 0.1, "max": 0.5, "channels": 16}
WHOLE = {
    "choices": {"model": "small14", "activation": "prelu", "init": "he", "data": "digits"},
    "science": SCIENCE | {"seed": 3, "optim": {"epochs": 75}},
    "protocols": {"center": result(441, 450)},
    "network": NETWORK | {"input_px": 32, "multiply_adds": 5318032},
    "slopes": {"conv1": {"mean": 0.3, **SLOPE}, "other": {"mean": 0.2, **SLOPE}},
    "drop_epochs": [30, 60],
    "images": {"train": 1347, "val": 450, "test": None},
    "images_per_second": 2200.4,
    "wall_s": 48.2,
}


def printed(record: Record) -> str:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_record(record, console)
    return console.export_text()


def row(text: str, first: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"{first} "))
    return re.split(r" {2,}", line.strip())


def test_numbers_stand_with_interval_and_paper() -> None:
    text = printed(training(**WHOLE))
    assert row(text, "center") == ["center", "2.00", "1.06 to 3.76", "0.00", "450 of val"]
    assert row(text, "conv1")[:4] == ["conv1", "0.300", "0.050", "0.596"]
    assert row(text, "other") == ["other", "0.200", "0.050", "-", "=" * 12]
