import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forkserver
from rectifiers.runs import record as records
from rectifiers.runtime.errors import InputError

WHOLE = {
    "schema_version": 1,
    "run": "0123456789ab",
    "status": "finished",
    "choices": {},
    "science": {
        "seed": 0,
        "data": {"crop_px": 8},
        "model": {"width": 1},
        "optim": {"epochs": 3},
        "init": {},
        "activation": {},
        "preprocess": {},
    },
    "protocols": {},
    "network": dict.fromkeys(("depth", "input_px", "classes", "parameters", "multiply_adds"), 1),
    "ledger": [],
    "slopes": {},
    "drop_epochs": [],
    "epochs": 3,
    "history": [],
    "train_images": 100,
    "images_per_second": 1000.5,
    "wall_s": 1.5,
    "codes": [],
    "provenance": {"machine": {"cpu": "a processor", "threads": 1, "device": "cpu"}},
}

RESULT = {
    "seen": 5,
    "top1_correct": 1,
    "top1_error_pct": 80.0,
    "settings": {},
    "multiply_adds": 10,
    **dict.fromkeys(("top5_error_pct", "nll", "brier", "ece")),
}


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    records.write(tmp_path / "run" / "record.json", WHOLE)
    assert records.load(tmp_path / "run" / "record.json") == WHOLE
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["record.json"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"schema_version": 2}, "schema_version is 2 and this code reads 1"),
        ({"ledger": {}}, "ledger is a dict"),
        ({"status": "half"}, "status is 'half'"),
        ({"run": None}, "run is a NoneType"),
        ({"run": "../up"}, "run is named"),
        ({"epochs": True}, "epochs is a bool"),
        ({"science": {**WHOLE["science"], "data": {}}}, "no science.data.crop_px"),
        ({"history": [{"train_loss": "low"}]}, "history.0.train_loss is a str"),
        ({"slopes": {"conv1": {"mean": 0.2}}}, "no slopes.conv1.std"),
        ({"protocols": {"center": {}}}, "no protocols.center.seen"),
        ({"protocols": {"center": {**RESULT, "seen": 0}}}, "1 of 0 images"),
        ({"protocols": {"center": {**RESULT, "top1_correct": 9}}}, "9 of 5 images"),
        ({"protocols": {"center": {**RESULT, "top5_error_pct": 1.0}}}, "no top5_correct"),
        ({"protocols": {"center": {**RESULT, "top1_hits": "xy"}}}, "not hexadecimal"),
        ({"protocols": {"center": {**RESULT, "top1_hits": "f"}}}, "not of 5 images"),
        ({"members": []}, "of no member"),
    ],
)
def test_what_is_no_record_is_neither_written_nor_read(tmp_path: Path, change: dict, fault: str) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(ValueError, match=fault):
        records.write(path, {**WHOLE, **change})
    assert not path.exists()
    path.write_text(json.dumps({**WHOLE, **change}))
    with pytest.raises(InputError, match=fault):
        records.load(path)


def test_a_damaged_record_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"schema_version": 1')
    with pytest.raises(InputError, match=r"record\.json is not .* \(Expecting .*; remove it, or give rerun=true"):
        records.load(path)
    path.write_text(json.dumps({k: v for k, v in WHOLE.items() if k != "slopes"}))
    with pytest.raises(InputError, match="it has no slopes"):
        records.load(path)
    path.write_text("[]")
    with pytest.raises(InputError, match="not a JSON object"):
        records.load(path)


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        records.write(tmp_path / "record.json", {**WHOLE, "wall_s": float("nan")})
    assert not list(tmp_path.iterdir())


WRITER = """
import sys
from pathlib import Path
from rectifiers.runtime.files import write_text
print("ready", flush=True)
n = 0
while True:
    n += 1
    write_text(Path(sys.argv[1]), f"{n} " * 20000)
"""


@pytest.mark.process
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for attempt in range(6):
        process = forkserver.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.02 + 0.013 * attempt)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if path.exists():
            words = path.read_text().split()
            assert len(words) == 20000
            assert len(set(words)) == 1
