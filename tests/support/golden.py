"""Golden results: what small runs give, bit by bit, with the ids and numbers of committed results.

`test_golden.py` holds a change that is to move no number against them. After a change that
CHANGELOG.md marks [number], `python tests/support/golden.py write runs` writes them again.

Each of six small runs is made on 1, 2 and 3 ranks, straight, and killed and resumed: the two agree
bit by bit. Runs hold for the processor that made them. On another one, write them at the commit
that golden.json names, and check the change with that.
"""

import argparse
import hashlib
import json
import lzma
import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1]))

from committed import stored
from conftest import ROOT
from processes import alone, finish, kill_what_is_left, ranks, start, start_ranks, wait_for
from processes import record as record_path
from rectifiers.claims import archive as claim_records
from rectifiers.claims.claims import claims
from rectifiers.claims.judge import answer
from rectifiers.cli.composition import compose_job
from rectifiers.runs.identity import arm_hash, run_id, science
from rectifiers.runtime import machine
from rectifiers.runtime.files import git

PLACE = Path(__file__).with_suffix(".json")
NUMBERS = Path(__file__).with_name("golden_numbers.json.xz")

COMMON = ("data=digits8", "data.batch_size=48", "threads=1", "logger=none")
ROWS = "model=mini model.stage2=2 model.stage3=2 model.filters=[12,16,20]"
MLP = "model=mlp model.depth=3 model.hidden=32"
RUNS = {
    "rows": f"{ROWS} model.dropout=0.2 trainer.max_epochs=4 checkpoint.every_n_steps=5",
    "resnet": "model=resnet20 model.blocks=1 model.width=0.5 trainer.max_epochs=3",
    "interventions": f"""{MLP} activation=relu preprocess=zca callbacks=revive_dead
        callbacks.revive_dead.after_epoch=2 trainer.max_epochs=5""",
    "protocols": f"""{ROWS} activation=leaky_relu data.resize_px=10 data.scale_jitter_px=[8,12]
        data.pad_px=1 trainer.max_epochs=3 evaluation=[calibration,dense_and_multi_view]""",
    "plateau": f"""{MLP} preprocess=standardize trainer.max_epochs=8 optim.lr=0.1
        scheduler.patience=1""",
    "batch_norm": f"""{ROWS} activation=prelu_shared model.norm=batch trainer.max_epochs=4
        scheduler=multistep scheduler.milestones=[2]""",
}
WORLDS = (1, 2, 3)  # ranks
CLOCK = ("seconds", "images_per_second")  # keys of an epoch that no run repeats


def this_processor() -> str:
    return f"{machine.name()} {machine.instructions()}"


def run(place: Path, name: str, world: int, *, kill: bool) -> dict[str, Any]:
    """Make a run below `place`, killed once after its first checkpoint where `kill`."""
    overrides = (*RUNS[name].split(), *COMMON, f"trainer.devices={world}")
    command = alone(place, *overrides)
    if kill:
        started = [start(command)] if world == 1 else start_ranks(*[command] * world)
        wait_for(lambda: list(place.glob("runs/[0-9a-f]*/last.ckpt")), started[0])
        for process in started:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    if world == 1:
        finish(command)
    else:
        for ended in ranks(*[command] * world):
            assert ended.returncode == 0, ended.stderr
    return result(record_path(place))


def result(path: Path) -> dict[str, Any]:
    """Return what is kept of a run: its id, its last losses, and hashes of all numbers."""
    record = json.loads(path.read_text())
    state = torch.load(path.parent / "last.ckpt", weights_only=True)["state_dict"]
    weights = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        weights.update(name.encode() + tensor.contiguous().numpy().tobytes())
    history = [
        {key: value for key, value in epoch.items() if key not in CLOCK}
        for epoch in record["history"]
    ]
    counts = {
        protocol: [tested["num_images"], tested["top1_correct"], tested["top5_correct"]]
        for protocol, tested in record["protocols"].items()
    }
    digest = hashlib.sha256(json.dumps(history, sort_keys=True).encode()).hexdigest()
    return {
        "id": record["run"],
        "drop_epochs": record["drop_epochs"],
        "train_loss": history[-1]["train_loss"],
        "val/top1_error_pct": history[-1]["val/top1_error_pct"],
        "history": digest,
        "weights": weights.hexdigest(),
        "counts": counts,
    }


def golden_runs() -> dict[str, Any]:
    """Make all runs; a run that was killed and one that was not must be equal."""
    found = {}
    for name in RUNS:
        for world in WORLDS:
            with tempfile.TemporaryDirectory() as straight, tempfile.TemporaryDirectory() as killed:
                found[f"{name}, {world} ranks"] = run(Path(straight), name, world, kill=False)
                resumed = run(Path(killed), name, world, kill=True)
            if resumed != found[f"{name}, {world} ranks"]:
                raise AssertionError(f"{name} on {world} ranks: the killed run gave {resumed}")
            print(f"{name}, {world} ranks: equal after a kill", file=sys.stderr)
    return found


def counts_of_runs() -> dict[str, str]:
    """Return the number of committed runs of each claim, and of the tables, with a hash of their
    ids."""
    ids: dict[str, list[str]] = {}
    for file, lines in stored().items():
        place = str(Path(file).parent)
        ids.setdefault(place, []).extend(record.run for _, record in lines)
    hashes = {
        place: hashlib.sha256(" ".join(sorted(runs)).encode()).hexdigest()
        for place, runs in ids.items()
    }
    return {place: f"{len(ids[place])} {hash_[:12]}" for place, hash_ in hashes.items()}


def composed_ids() -> dict[str, str]:
    """Return the id of `make train` and of each row of the paper, as the configuration composes
    them."""
    commands = {"make train": ["activation=prelu", "init=he"]}
    for path in sorted((ROOT / "conf" / "experiment").glob("*/*.yaml")):
        name = f"{path.parent.name}/{path.stem}"
        if name != "table7/ensemble":
            commands[name] = [f"experiment={name}"]
    return {
        name: run_id(science(compose_job(tuple(command))[0])) for name, command in commands.items()
    }


def composed_arms() -> dict[str, dict[str, str]]:
    """Return the hash of each arm of each claim, as the configuration composes them."""
    return {
        claim.name: {
            arm: arm_hash(science(compose_job((f"claim={claim.name}", *overrides))[0]))
            for arm, overrides in {**claim.arms, **claim.searched()}.items()
        }
        for claim in claims()
    }


def numbers_of_claims() -> dict[str, Any]:
    """Return n, effect and interval of each test of each claim, by index: words may change."""
    found = claim_records.load(ROOT / "results" / "claims")
    kept = {}
    for claim in claims():
        for index, test in enumerate(answer(claim, found).tests):
            finding = test.finding
            effect = [repr(x) for x in (finding.effect, finding.low, finding.high)]
            kept[f"{claim.name}: test {index}"] = [finding.n, *effect]
    return kept


def numbers_of_pages() -> dict[str, list[str]]:
    """Return the numbers of the committed tables, in their order; ids are none."""
    numbers = {}
    for name in ("TABLES.md", "LEADERBOARD.md"):
        text = re.sub(r"\b[0-9a-f]{12}\b", "", (ROOT / "results" / name).read_text())
        numbers[name] = re.findall(r"-?\d[\d,]*\.?\d*", text)
    return numbers


def numbers() -> dict[str, Any]:
    return {"claims": numbers_of_claims(), **numbers_of_pages()}


def differences(expected: Any, found: Any, at: str = "") -> list[str]:
    """Return a line for each value that differs; a page of results may have new numbers."""
    if isinstance(expected, dict) and isinstance(found, dict):
        lines = []
        for key in dict.fromkeys([*expected, *found]):
            lines += differences(expected.get(key), found.get(key), f"{at}/{key}")
        return lines
    if isinstance(expected, list) and isinstance(found, list) and len(expected) > 20:  # run ids
        lost, new = sorted({*expected} - {*found}), sorted({*found} - {*expected})
        is_more = new and not at.endswith(".md")
        return [f"{at}: lost {lost[:9]}, new {new[:9]}"] if lost or is_more else []
    return [] if expected == found else [f"{at}: {expected} became {found}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=["write"])
    parser.add_argument("part", nargs="*", help="runs, ids, numbers (default: all)")
    parts = parser.parse_args().part or ["runs", "ids", "numbers"]
    kept = json.loads(PLACE.read_text()) if PLACE.exists() else {"runs": {}}
    try:
        if "runs" in parts:
            kept["runs"] |= {this_processor(): golden_runs()}
    finally:
        kill_what_is_left()
    if "ids" in parts:
        kept |= {"ids": composed_ids(), "records": counts_of_runs()}
    if "numbers" in parts:
        NUMBERS.write_bytes(lzma.compress(json.dumps(numbers(), indent=0).encode()))
    kept["commit"] = git("rev-parse", "HEAD", at=ROOT)
    PLACE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
