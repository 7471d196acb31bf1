"""`results/CLAIMS.md`: every claim with what was found, the contradicted and the undecided first."""

import math
from collections.abc import Sequence

from rectifiers.results.claims import Answer, Tested
from rectifiers.results.layout import Line, Table
from rectifiers.results.numerical_floor import NumericalFloor
from rectifiers.results.verdicts import Verdict

FIGURES = "figures/claims"  # below results/

HEAD = """# Claims

Made by `make claims` from `results/claims/` and `conf/experiment/claim/`; do not edit. Every claim, its arms, its
seeds and its criterion stood in the configuration before its runs, or its note says when. An effect is the mean over
seeds (arms paired by seed) with Student's 95 % interval; the median with the exact interval of the sign test where an
epoch may not have been reached; or a share with Clopper and Pearson's interval. *Supported* means that the whole
interval lies where the criterion says, *contradicted* that it lies on the other side, *null* that neither is shown.
Equivalence (`within`) is decided by two one-sided tests at 5 %. A claim of several tests is supported where all are,
and contradicted where one is. Fewer runs than were planned are no verdict.

A run that diverged counts: its error and loss are those of guessing, and what it did not reach it did not reach.
Where a measure does not exist in such a run (the responses of a network that is gone), a test says how many pairs it
left out.

All of it is small: a verdict speaks of the setting in its line, not of ImageNet. Each seed has its own weights, order
and split of the images, so that an interval speaks of those too.
"""


def render_markdown(answers: Sequence[Answer], floor: NumericalFloor | None = None) -> str:
    """Return the whole document as Markdown."""
    rounding = [about_floor(answers, floor) + "\n"] if floor else []
    made = (table.markdown() for table in tables(answers))
    return "\n".join([HEAD, *rounding, multiplicity(answers), *made, figures(answers)])


def about_floor(answers: Sequence[Answer], floor: NumericalFloor) -> str:
    """Return what rounding alone does, and which verdicts it prevents."""
    held = [f"{a.claim.name} ({t.test.says})" for a in in_order(answers) for t in a.tested if t.finding.held_back]
    prevented = f"It prevents {len(held)} verdicts: {', '.join(held)}." if held else "It prevents no verdict."
    return (
        f"{floor} Where an effect is an error in points, its floor stands beside it, and a verdict also needs the "
        f"effect to lie on its side of the criterion's bound by the floor. {prevented}"
    )


def with_figures(answers: Sequence[Answer]) -> list[Answer]:
    """Return the claims that have something to draw, in the order of the tables."""
    return [each for each in in_order(answers) if any(tested.measured for tested in each.tested)]


def figures(answers: Sequence[Answer]) -> str:
    """Return the links to every claim's figure, as Markdown."""
    links = [
        f"- [{each.claim.name}]({FIGURES}/{each.claim.name}.svg): {each.claim.statement}"
        for each in with_figures(answers)
    ]
    head = "## Figures\n\nEvery seed's numbers, and the effect with its interval beside the criterion.\n"
    return "\n".join([head, *links, ""]) if links else ""


def multiplicity(answers: Sequence[Answer]) -> str:
    """Return how many claims were judged, and how many would be found supported, or contradicted, by chance."""
    judged = [each for each in answers if each.verdict in (Verdict.SUPPORTED, Verdict.NULL, Verdict.CONTRADICTED)]
    counts = ", ".join(f"{sum(a.verdict is v for a in answers)} {v}" for v in Verdict)
    supported = sum(max(test.test.criterion.chance() for test in each.tested) for each in judged)
    contradicted = sum(0.025 * len(each.tested) for each in judged)
    return (
        f"{len(answers)} claims: {counts}. Of the {len(judged)} with a verdict, at most {supported:.1f} would be found "
        "supported by chance if none held (2.5 % of each, 5 % of an equivalence, the largest of a claim's tests), and "
        f"at most {contradicted:.1f} contradicted if all held (2.5 % of each test). No interval is widened for their "
        "number.\n"
    )


def in_order(answers: Sequence[Answer]) -> list[Answer]:
    """Return the contradicted first, then the null, the supported, and those without a verdict."""
    return sorted(answers, key=lambda each: (list(Verdict).index(each.verdict), each.claim.name))


def tables(answers: Sequence[Answer]) -> list[Table]:
    """Return the table of verdicts, that of arms, and that of what was not run."""
    verdicts, arms, left = [], [], []
    for each in in_order(answers):
        claim = each.claim
        if not claim.tests:
            left.append(Line([claim.name, claim.statement, claim.source, claim.not_run]))
            continue
        command = f"`python scripts/claims.py run {claim.name}`"
        for i, tested in enumerate(each.tested):
            own = [str(each.verdict), claim.name, claim.statement, claim.source] if i == 0 else ["", "", "", ""]
            beside = [scale(each), command] if i == 0 else ["", ""]
            verdicts.append(Line([*own, *_finding(tested), *beside], tested.runs))
        for i, (arm, given) in enumerate(claim.arms.items()):
            seconds = f"{claim.cpu_s[arm]:g}" if arm in claim.cpu_s else "-"
            note = claim.note if i == 0 else ""
            arms.append(Line([claim.name if i == 0 else "", arm, f"`{' '.join(given) or '-'}`", seconds, note]))
    head = ("verdict", "claim", "statement", "source", "tested", "n", "effect (95 %)", "criterion", "found", "scale")
    asked = ("claim", "arm", "besides `experiment=claim/<claim>`", "CPU seconds a run", "note")
    return [
        Table("claims", "", "Verdicts", 2, (*head, "command"), verdicts),
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
    images = sorted({f"{record.train_images:,}" for record in found})
    data = sorted({str(record.choices.get("data")) for record in found})
    network = ", ".join(networks) if len(networks) < 3 else f"{len(networks)} networks"
    length = f"{' or '.join(map(str, epochs))} epoch{'s' * (epochs != [1])} of {', '.join(images)} images"
    return ", ".join([*data, network, length])


def _finding(tested: Tested) -> list[str]:
    test, found = tested.test, tested.finding
    statistic = f" ({test.statistic})" if test.statistic != "mean" else ""
    effect = "-" if math.isnan(found.effect) else f"{found.effect:.3g}"
    if math.isfinite(found.low):
        effect += f" ({found.low:.3g} to {found.high:.3g})"
    effect += f", floor {found.floor:.2g}" if found.floor else ""
    counts = str(found.n)
    counts += f", {tested.lost} diverged" if tested.lost else ""
    counts += f", {tested.left_out} left out" if tested.left_out else ""
    verdict = f"{found.verdict}{', by the floor' if found.held_back else ''}"
    return [
        f"{test.says}: {test.measure_name()}, {test.compared()}{statistic}",
        counts,
        effect,
        str(test.criterion),
        verdict,
    ]
