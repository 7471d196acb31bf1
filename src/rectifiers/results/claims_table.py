"""`results/CLAIMS.md`: every claim with what was found, the contradicted and the undecided
first."""

from collections.abc import Sequence
from pathlib import Path

from rectifiers.results.claims import Answer, Tested
from rectifiers.results.comparisons import Description
from rectifiers.results.layout import Line, Table
from rectifiers.results.verdicts import Verdict
from rectifiers.results.wording import (
    NOT_JUDGED,
    compared,
    counts,
    effect_of,
    mean,
    scale,
    verdict_of,
    with_means,
)
from rectifiers.runs.record import TrainingRecord

FIGURES = "figures/claims"  # below results/


def render_markdown(
    answers: Sequence[Answer],
    searches: Table | None = None,
    runs: Sequence[TrainingRecord] = (),
) -> str:
    """Return the whole document as Markdown; how many verdicts would be chance is a part of it.

    searches: the table of the arms' learning rates. runs: all that were made for it.
    """
    from jinja2 import (
        Environment,
        FileSystemLoader,
        StrictUndefined,
    )  # here and not above: only documents need it

    evidence = [each for each in answers if not each.claim.is_check]
    judged = [each for each in evidence if each.verdict not in (Verdict.TOO_FEW, Verdict.NOT_RUN)]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template("claims.md.j2").render(
        answers=evidence,
        checks=[each.claim for each in answers if each.claim.is_check],
        counts=", ".join(
            f"{sum(each.verdict is verdict for each in evidence)} {verdict}" for verdict in Verdict
        ),
        judged=judged,
        spent=time_spent(runs),
        supported=sum(
            max(tested.test.criterion.chance() for tested in each.tested) for each in judged
        ),
        contradicted=sum(0.025 * len(each.tested) for each in judged),
        tables=[*tables(answers), *([searches] if searches and searches.lines else [])],
        drawn=[each.claim for each in with_figures(answers)],
        folder=FIGURES,
    )


def time_spent(runs: Sequence[TrainingRecord]) -> str:
    """Return how long runs took in one sentence; nothing where there are none."""
    hours: dict[str, float] = {}
    for run in runs:
        data = str(run.choices.get("data"))
        hours[data] = hours.get(data, 0) + run.wall_s / 3600
    each = ", ".join(f"{spent:.1f} on {data}" for data, spent in sorted(hours.items()))
    whole = (
        f"{len(runs):,} runs, with those of the searches, took {sum(hours.values()):.1f} "
        "hours by the wall clock"
    )
    without = (
        "runs that were made twice, first designs that are not kept, and those of the "
        "measurement of rounding and the benchmark"
    )
    return (
        f"{whole}, in one thread each and mostly beside other work: {each}; without {without}."
        if runs
        else ""
    )


def with_figures(answers: Sequence[Answer]) -> list[Answer]:
    """Return the claims that have something to draw, in the order of the tables."""
    return [each for each in in_order(answers) if any(tested.measured for tested in each.tested)]


def in_order(answers: Sequence[Answer]) -> list[Answer]:
    """Return the contradicted first, then what is inconclusive, and those without a verdict
    last."""
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
            own = (
                [str(each.verdict), claim.name, claim.statement, claim.source]
                if i == 0
                else ["", "", "", ""]
            )
            beside = [scale(each), command] if i == 0 else ["", ""]
            lines = checks if claim.is_check else verdicts
            lines.append(Line([*own, *_finding(tested), *beside], tested.runs))
            if tested.beside:
                lines.append(_described(tested.beside))
        verdicts += map(_described, each.described)
        for i, (arm, given) in enumerate(claim.arms.items()):
            note = claim.note if i == 0 else ""
            arms.append(
                Line([claim.name if i == 0 else "", arm, f"`{' '.join(given) or '-'}`", note])
            )
    head = (
        "verdict",
        "claim",
        "statement",
        "source",
        "tested",
        "n",
        "effect (95 %)",
        "criterion",
        "found",
        "scale",
    )
    asked = ("claim", "arm", "besides `experiment=claim/<claim>`", "note")
    return [
        Table("claims", "", "Verdicts", 2, (*head, "command"), verdicts),
        Table("claim checks", "", "Checks", 2, (*head, "command"), checks),
        Table("claim arms", "", "Arms", 2, asked, arms),
        Table("claims not run", "", "Not run", 2, ("claim", "statement", "source", "why"), left),
    ]


def _finding(tested: Tested) -> list[str]:
    test, found = tested.test, tested.finding
    statistic = f" ({test.statistic})" if test.statistic != "mean" else ""
    tested_what = f"{test.says}: {test.measure_name()}, {compared(tested)}{statistic}"
    return [tested_what, counts(tested), effect_of(found), str(test.criterion), verdict_of(found)]


def _described(found: Description) -> Line:
    what = (
        f"{found.comparison.says}: {found.comparison.measure_name()}, "
        f"{with_means(found.comparison, found.measured)}"
    )
    return Line(["", "", "", "", what, str(found.n()), mean(found), "-", NOT_JUDGED, "", ""])
