"""`results/FINDINGS.md`: what the claims found, on one page, and as prominently what they could not find."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from rectifiers.results.claims import Answer, Tested
from rectifiers.results.claims_table import FIGURES, compared, effect_of, scale, verdict_of
from rectifiers.results.verdicts import Verdict
from rectifiers.runtime.errors import InputError

CHOSEN = Path(__file__).with_name("findings.yaml")
HEAD = """# Findings

Made by `make claims` from the committed records; do not edit. Each is a claim whose criterion stood before its runs:
the sentence that was claimed, and what the runs say of it. An effect is a mean over seeds with its 95 % interval unless
it says otherwise; before a difference stand the means of its two arms, where a run that diverged has the error of
guessing. [CLAIMS.md](CLAIMS.md) has every claim, every arm and what the words mean. All of it is small: a verdict
speaks of the data and the network in its line, not of ImageNet.
"""


def chosen() -> list[str]:
    """Return the names of the claims that the page begins with."""
    return list(yaml.safe_load(CHOSEN.read_text()))


def render_markdown(answers: Sequence[Answer]) -> str:
    """Return the page: the chosen claims, then all that are inconclusive.

    Raises:
        InputError: where a chosen claim does not exist.
    """
    by_name = {each.claim.name: each for each in answers}
    for name in chosen():
        if name not in by_name:
            raise InputError(f"{CHOSEN.name} names {name}, which is not a claim; give one of conf/experiment/claim")
    parts = [HEAD, *(_finding(i, by_name[name]) for i, name in enumerate(chosen(), start=1))]
    open_ones = [each for each in answers if each.verdict is Verdict.INCONCLUSIVE and each.claim.name not in chosen()]
    parts.append("## Inconclusive\n\nWhat these experiments could not decide, with the power that they had.\n")
    parts.append("\n".join(map(_open, open_ones)) + "\n" if open_ones else "None.\n")
    return "\n".join(parts)


def _finding(number: int, answer: Answer) -> str:
    claim = answer.claim
    lines = [f"{number}. **{claim.statement}: {answer.verdict}.** ({claim.source})"]
    lines += [f"    - {_tested(tested)}" for tested in answer.tested]
    figure = f"[figure]({FIGURES}/{claim.name}.svg), " if any(tested.measured for tested in answer.tested) else ""
    lines.append(f"    - {scale(answer)}; {figure}`python scripts/claims.py run {claim.name}`")
    return "\n".join(lines) + "\n"


def _open(answer: Answer) -> str:
    undecided = [each for each in answer.tested if each.finding.verdict is Verdict.INCONCLUSIVE]
    found = "; ".join(map(_tested, undecided))
    return f"- {answer.claim.statement}. {found}. `python scripts/claims.py run {answer.claim.name}`"


def _tested(tested: Tested) -> str:
    found = tested.finding
    lost = f", {tested.lost} run{'s' * (tested.lost != 1)} diverged" if tested.lost else ""
    return f"{tested.test.says}, {compared(tested)}: {effect_of(found)}, n = {found.n}{lost}: {verdict_of(found)}"
