"""`results/CLAIMS.md`: every claim with what was found, the contradicted and the undecided first."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rectifiers.results.claims import Answer, Tested
from rectifiers.results.eligibility import SAME_IMAGES
from rectifiers.results.layout import Line, Table
from rectifiers.results.numerical_floor import NumericalFloor
from rectifiers.results.power import MOST_SEEDS, WANTED
from rectifiers.results.verdicts import Finding, Verdict

SMALLEST_POWER = 0.01  # that is written as a number
FIGURES = "figures/claims"  # below results/


def render_markdown(
    answers: Sequence[Answer], floor: NumericalFloor | None = None, searches: Table | None = None
) -> str:
    """Return the whole document as Markdown; how many verdicts would be chance is a part of it.

    searches: the table of the arms' learning rates.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # here and not above: only documents need it

    evidence = [each for each in answers if not each.claim.is_check]
    judged = [each for each in evidence if each.verdict not in (Verdict.TOO_FEW, Verdict.NOT_RUN)]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template("claims.md.j2").render(
        answers=evidence,
        checks=[each.claim for each in answers if each.claim.is_check],
        floor=floor and about_floor(answers, floor),
        counts=", ".join(f"{sum(each.verdict is verdict for each in evidence)} {verdict}" for verdict in Verdict),
        judged=judged,
        supported=sum(max(tested.test.criterion.chance() for tested in each.tested) for each in judged),
        contradicted=sum(0.025 * len(each.tested) for each in judged),
        tables=[*tables(answers), *([searches] if searches and searches.lines else [])],
        drawn=[each.claim for each in with_figures(answers)],
        folder=FIGURES,
    )


def about_floor(answers: Sequence[Answer], floor: NumericalFloor) -> str:
    """Return what rounding alone does, and which verdicts it prevents."""
    held = [f"{a.claim.name} ({t.test.says})" for a in in_order(answers) for t in a.tested if t.finding.held_back]
    number = f"{len(held)} verdict{'s' * (len(held) != 1)}"
    prevented = f"It prevents {number}: {', '.join(held)}." if held else "It prevents no verdict."
    return (
        f"{floor} Where an effect is an error in points, its floor stands beside it, and a verdict also needs the "
        f"effect to lie on its side of the criterion's bound by the floor. {prevented}"
    )


def with_figures(answers: Sequence[Answer]) -> list[Answer]:
    """Return the claims that have something to draw, in the order of the tables."""
    return [each for each in in_order(answers) if any(tested.measured for tested in each.tested)]


def in_order(answers: Sequence[Answer]) -> list[Answer]:
    """Return the contradicted first, then what is inconclusive, and those without a verdict last."""
    return sorted(answers, key=lambda each: (list(Verdict).index(each.verdict), each.claim.name))


def tables(answers: Sequence[Answer]) -> list[Table]:
    """Return the tables of verdicts, of checks, of arms, and of what was not run."""
    verdicts, checks, arms, left = (list[Line]() for _ in range(4))
    for each in in_order(answers):
        claim = each.claim
        if not claim.tests:
            left.append(Line([claim.name, claim.statement, claim.source, claim.not_run]))
            continue
        command = f"`python scripts/claims.py run {claim.name}`"
        for i, tested in enumerate(each.tested):
            own = [str(each.verdict), claim.name, claim.statement, claim.source] if i == 0 else ["", "", "", ""]
            beside = [scale(each), command] if i == 0 else ["", ""]
            (checks if claim.is_check else verdicts).append(Line([*own, *_finding(tested), *beside], tested.runs))
        for i, (arm, given) in enumerate(claim.arms.items()):
            seconds = f"{claim.cpu_s[arm]:g}" if arm in claim.cpu_s else "-"
            note = claim.note if i == 0 else ""
            arms.append(Line([claim.name if i == 0 else "", arm, f"`{' '.join(given) or '-'}`", seconds, note]))
    head = ("verdict", "claim", "statement", "source", "tested", "n", "effect (95 %)", "criterion", "found", "scale")
    asked = ("claim", "arm", "besides `experiment=claim/<claim>`", "CPU seconds a run", "note")
    return [
        Table("claims", "", "Verdicts", 2, (*head, "command"), verdicts),
        Table("claim checks", "", "Checks", 2, (*head, "command"), checks),
        Table("claim arms", "", "Arms", 2, asked, arms),
        Table("claims not run", "", "Not run", 2, ("claim", "statement", "source", "why"), left),
    ]


def scale(answer: Answer) -> str:
    """Return data, network and length of a claim's runs."""
    found = answer.records
    if not found:
        return "-"
    sizes = ((r.choices.get("model"), r.network) for r in found)
    networks = sorted({f"{m} of {n.depth} layers, {n.parameters:,} parameters" for m, n in sizes})
    epochs = sorted({record.science["optim"]["epochs"] for record in found})
    images = sorted({f"{record.images.train:,}" for record in found})
    data = sorted({str(record.choices.get("data")) for record in found})
    network = ", ".join(networks) if len(networks) < 3 else f"{len(networks)} networks"
    length = f"{' or '.join(map(str, epochs))} epoch{'s' * (epochs != [1])} of {', '.join(images)} images"
    papers = [SAME_IMAGES] if any(record.images.test is None for record in found) else []
    return ", ".join([*data, network, length, *papers])


def compared(tested: Tested) -> str:
    """Return what is compared, with the means of the arms whose difference is meant: how good either is."""
    what = tested.test.compared()
    if not (tested.test.minus and tested.measured and tested.test.statistic == "mean"):
        return what
    own, other = map(fmean, zip(*tested.measured, strict=True))
    return f"{what} ({own:.3g} and {other:.3g})"


def effect_of(found: Finding) -> str:
    """Return an effect with its interval and its floor, as far as it has them."""
    effect = "-" if math.isnan(found.effect) else f"{found.effect:.3g}"
    if math.isfinite(found.low):
        effect += f" ({found.low:.3g} to {found.high:.3g})"
    return effect + (f", floor {found.floor:.2g}" if found.floor else "")


def verdict_of(found: Finding) -> str:
    """Return a verdict with what prevented another one."""
    verdict = f"{found.verdict}{', by the floor' if found.held_back else ''}"
    if found.power is None:
        return verdict
    power = f"{found.power:.2f}" if found.power >= SMALLEST_POWER else f"below {SMALLEST_POWER}"
    needed = f"{found.needed:,} seeds" if found.needed else f"more than {MOST_SEEDS:,} seeds"
    return f"{verdict} (its power was {power}; a power of {WANTED:g} needs {needed})"


def _finding(tested: Tested) -> list[str]:
    test, found = tested.test, tested.finding
    statistic = f" ({test.statistic})" if test.statistic != "mean" else ""
    counts = str(found.n)
    counts += f", {tested.lost} diverged" if tested.lost else ""
    counts += f", {tested.left_out} left out" if tested.left_out else ""
    tested_what = f"{test.says}: {test.measure_name()}, {compared(tested)}{statistic}"
    return [tested_what, counts, effect_of(found), str(test.criterion), verdict_of(found)]
