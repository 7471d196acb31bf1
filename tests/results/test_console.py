import re

from rich.console import Console

from made_up import NETWORK, SCIENCE, altered, diverged, result, training
from rectifiers.results.console import bar, print_record
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


def test_every_number_stands_with_its_n_interval_and_the_papers_beside_it() -> None:
    text = printed(training(**WHOLE))
    assert row(text, "center") == ["center", "2.00", "1.06 to 3.76", "0.00", "450 of val"]
    assert row(text, "conv1")[:4] == ["conv1", "0.300", "0.050", "0.596"]
    assert row(text, "other") == ["other", "0.200", "0.050", "-", "=" * 12]
    assert "1,000 parameters + 100 slopes" in text
    assert "5,318,032 multiply-adds" in text
    assert "75 of 75 epochs of 1,347 images (the paper: 75 of ImageNet)" in text
    assert "dropped after epoch: 30, 60; validated on 450 images" in text
    assert "2,200 training images a second" in text


def test_shared_slopes_stand_beside_the_papers_shared_column() -> None:
    record = altered(training(**WHOLE), {"slopes.conv1.channels": 1, "slopes.other.channels": 1})
    assert row(printed(record), "conv1")[:3] == ["conv1", "0.300", "0.681"]


def test_a_slope_is_a_bar_and_the_papers_a_mark_on_the_same_scale() -> None:
    assert bar(0.25, 0.5, 0.0, 0.5) == "=" * 18 + " " * 18 + "o"
    assert bar(0.5, 0.25, 0.0, 0.5) == "=" * 18 + "o" + "=" * 17
    assert bar(-0.25, None, -0.25, 0.5) == ""
    assert bar(0.0, 0.0, 0.0, 0.0) == "o"


def test_the_14_layers_fit_a_terminal_of_80_columns_and_30_lines() -> None:
    names = [
        "conv1",
        *(f"conv2_{i}" for i in range(1, 5)),
        *(f"conv3_{i}" for i in range(1, 7)),
        "fc1",
        "fc2",
    ]
    slopes = {name: {"mean": 0.25 + i / 7, **SLOPE} for i, name in enumerate(names)}
    protocols = {"center": result(441, 450), "ten_view": result(440, 450)}
    lines = printed(training(**WHOLE | {"slopes": slopes, "protocols": protocols})).splitlines()
    assert len(lines) < 30  # one is left for the record's path
    assert [line.split()[0] for line in lines[-13:]] == names
    assert "…" not in "".join(lines)
    assert max(map(len, lines)) <= 80


def test_what_is_not_there_is_not_made_up() -> None:
    nothing = dict.fromkeys(("protocols.center.top5_correct", "protocols.center.top5_error_pct"))
    text = printed(altered(training(**WHOLE), nothing | {"slopes": {}}))
    assert row(text, "center")[3] == "-"
    assert "conv1" not in text


def test_a_run_is_printed_with_its_code_and_machine() -> None:
    record = altered(
        training(**WHOLE), {"codes": ["0123456789ab"], "provenance.machine.threads": 2}
    )
    assert "code 0123456789ab on a processor, 2 threads\n" in printed(record)
    known = altered(record, {"provenance.machine.instructions": "AVX2"})
    assert "code 0123456789ab on a processor (AVX2), 2 threads\n" in printed(known)
    codes = {"codes": ["0123456789ab", "ba9876543210"], "provenance.machine.device": "NVIDIA H100"}
    assert "code 0123456789ab+ba9876543210 on NVIDIA H100, 2 threads\n" in printed(
        altered(record, codes)
    )


def test_a_diverged_run_says_where() -> None:
    text = printed(diverged(**WHOLE | {"protocols": {}, "slopes": {}, "images_per_second": None}))
    assert "diverged at step 7, first seen at conv2" in text
