"""The claims' runs: what is missing is planned as a sweep and started; `scripts/report.py claims` tabulates.

python scripts/claims.py list                        claims, their runs and what they cost
python scripts/claims.py run --jobs 2                run what neither runs/ nor results/claims has
python scripts/claims.py run figure3 dead_units      of some claims
python scripts/claims.py run --again                 also what results/claims has: all of it on this machine
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from rectifiers.results.claim_records import load
from rectifiers.results.claims import Claim, claim_exclusion_reason, claims, runs_of
from rectifiers.runs import record as records
from rectifiers.runs.config import check
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.provenance import version
from rectifiers.runs.sweep import Cell, write
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CONF

RESULTS = Path(__file__).parents[1] / "results" / "claims"
# of a claim's runs beside its arm: W&B is not asked for hundreds of runs of seconds, and one thread gives equal bits
ALWAYS = ("logger=none", "compute.threads=1")


def chosen(names: list[str]) -> list[Claim]:
    """Return the claims of these names, or all that have runs."""
    known = {claim.name: claim for claim in claims() if claim.tests}
    for name in names:
        if name not in known:
            raise InputError(f"{name} is no claim that can be run; there are: {', '.join(known)}")
    return [known[name] for name in names] if names else list(known.values())


def composed(claim: Claim, arm: str) -> tuple[Any, dict[str, Any], list[str]]:
    """Return the configuration of an arm, unresolved, with its choices and what would be typed for it."""
    typed = [f"experiment=claim/{claim.name}", *claim.arms[arm], *ALWAYS]
    try:
        config = compose("train", overrides=typed, return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as fault:
        raise InputError(f"claim/{claim.name}, arm {arm}: {' '.join(str(fault).split())}") from fault
    choices = {g: o for g, o in config.hydra.runtime.choices.items() if "hydra" not in g}
    with open_dict(config):
        del config["hydra"], config["claim"]
    return config, choices, typed


def plan(wanted: Iterable[Claim], runs: Path, again: bool) -> list[Cell]:
    """Return a cell for every run that is missing; two claims that share a run have one."""
    from rectifiers.training.cells import plan_cell  # here and not above: `list` does without torch

    kept = [] if again else load(RESULTS)
    committed = version()["git_dirty"] is False
    cells: dict[str, Cell] = {}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for claim in wanted:
            there = runs_of(claim, kept)
            for arm in claim.arms:
                missing = [seed for seed in range(claim.seeds) if seed not in there[arm]]
                if not missing:
                    continue
                config, choices, typed = composed(claim, arm)
                config.runs_dir = str(runs)
                for seed in missing:
                    config.seed = seed
                    plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
                    check(plain)
                    name = run_id(science(plain))
                    path = runs / name / "record.json"
                    why = claim_exclusion_reason(records.load(path)) if committed and path.exists() else None
                    if why:  # of code that was not committed, say
                        print(f"{path} answers nothing, for {why}; it is run again", file=sys.stderr)
                        plain["rerun"] = True
                    if name not in cells and (why or not path.exists()):
                        cells[name] = plan_cell([*typed, f"seed={seed}", *["rerun=true"] * bool(why)], plain, choices)
    return list(cells.values())


def run(wanted: list[Claim], asked: argparse.Namespace) -> None:
    """Plan what is missing and hand this process over to scripts/sweep.py."""
    if version()["git_dirty"]:
        print("the code is not committed: results/claims will not take in what runs now", file=sys.stderr)
    print("planning ...", file=sys.stderr)
    cells = plan(wanted, asked.runs, asked.again)
    print(f"missing runs: {len(cells)}", file=sys.stderr)
    if not cells:
        return
    names = hashlib.sha256(" ".join(sorted(cell.name for cell in cells)).encode()).hexdigest()[:8]
    sweep = Path("sweeps") / f"claims-{names}"
    write(sweep, cells)
    launch = [sys.executable, str(Path(__file__).with_name("sweep.py")), "launch", str(sweep)]
    sys.stdout.flush()
    os.execv(sys.executable, [*launch, "--jobs", str(asked.jobs), "--together"])


def tell(wanted: Iterable[Claim]) -> None:
    """Print the claims with their cost."""
    table = Table("claim", "statement", "runs", "CPU minutes")
    kept = load(RESULTS)
    for claim in wanted:
        there = sum(len(arm) for arm in runs_of(claim, kept).values())
        runs = f"{there} of {claim.seeds * len(claim.arms)}"
        table.add_row(claim.name, claim.statement, runs, f"{claim.seconds() / 60:.1f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("list", "claims, their runs and what they cost"), ("run", "run what is missing")):
        command = commands.add_parser(name, help=text)
        command.add_argument("claim", nargs="*", help="some claims (default: all)")
        if name == "run":
            command.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
            command.add_argument("--again", action="store_true", help="also what results/claims has")
            command.add_argument("--runs", type=Path, default=Path("runs"), help="the folder of runs (default: runs)")
    asked = parser.parse_args()
    try:
        wanted = chosen(asked.claim)
        tell(wanted) if asked.command == "list" else run(wanted, asked)
    except InputError as fault:
        sys.exit(f"error: {fault}")


if __name__ == "__main__":
    main()
