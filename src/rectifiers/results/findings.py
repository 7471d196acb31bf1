"""`results/FINDINGS.md`: what the claims found, as prominently what they could not find, and what is otherwise."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from rectifiers.results.claims import Answer, Claim, Tested
from rectifiers.results.claims_table import FIGURES
from rectifiers.results.verdicts import Verdict
from rectifiers.results.wording import compared, counts, described, effect_of, scale, verdict_of
from rectifiers.runtime.errors import InputError

CHOSEN = Path(__file__).with_name("findings.yaml")
HEAD = """# Findings

Made by `make claims` from the committed records; do not edit. Ten findings, then what is inconclusive, then what is
contradicted, then what is not run. Each is a claim whose criterion stood before its runs (its sentence may have been
worded more plainly since), and what the runs say of it. An effect is a mean over seeds with its 95 % interval unless
it says otherwise; before a difference stand the means of its two arms, where a run that diverged has the error of
guessing. The floor of an effect in points is how far rounding moved such runs of one configuration (95 %), on the same
data unless others are named. What is described and not judged was looked at after the runs and by no criterion.
[CLAIMS.md](CLAIMS.md) has every claim, every arm and what the words mean. All of it is small: a verdict speaks of the
data and the network in its line, not of ImageNet.
"""


def chosen() -> list[str]:
    """Return the names of the claims that the page begins with."""
    return list(_chosen())


def _chosen() -> dict[str, list[str]]:
    """The claims that the page begins with, each with those that stand below it."""
    return yaml.safe_load(CHOSEN.read_text())


def render_markdown(answers: Sequence[Answer]) -> str:
    """Return the page: the chosen claims, then all others that are inconclusive, contradicted, or not run.

    Raises:
        InputError: where a chosen claim does not exist.
    """
    by_name = {each.claim.name: each for each in answers}
    for name in (name for first, below in _chosen().items() for name in (first, *below)):
        if name not in by_name:
            raise InputError(f"{CHOSEN.name} names {name}, which is not a claim; give one of conf/experiment/claim")
    others = [each for each in answers if each.claim.name not in chosen()]
    undecided, contradicted, left = (
        [each for each in others if each.verdict is verdict]
        for verdict in (Verdict.INCONCLUSIVE, Verdict.CONTRADICTED, Verdict.NOT_RUN)
    )
    parts = [HEAD]
    for i, (name, below) in enumerate(_chosen().items(), start=1):
        parts.append(_entry(f"{i}.", by_name[name], by_name[name].tested, [by_name[each] for each in below]))
    parts.append("## Inconclusive\n\nWhat these experiments could not decide, with the power that they had.\n")
    parts += [_entry("-", each, _with(Verdict.INCONCLUSIVE, each)) for each in undecided] or ["None.\n"]
    parts.append("## Contradicted\n\nWhat turned out otherwise than claimed, besides the above.\n")
    parts.append("\n".join(map(_line, contradicted)) + "\n" if contradicted else "None.\n")
    parts.append("## Not run\n\nWhat is still to be run, or cannot be.\n")
    parts.append("".join(f"- {each.claim.statement}: {_missing(each.claim)}\n" for each in left) or "None.\n")
    return "\n".join(parts)


def _missing(claim: Claim) -> str:
    return claim.not_run or f"`python scripts/claims.py run {claim.name}`"


def _with(verdict: Verdict, answer: Answer) -> list[Tested]:
    return [each for each in answer.tested if each.finding.verdict is verdict]


def _entry(marker: str, answer: Answer, tests: Sequence[Tested], below: Sequence[Answer] = ()) -> str:
    claim = answer.claim
    lines = [f"{marker} **{claim.statement}: {answer.verdict}.** ({claim.source})"]
    lines += [f"    - {line}" for tested in tests for line in _tested(tested)]
    lines += [f"    - {described(each)}" for each in answer.described]
    lines += [f"    - {each.claim.statement}: {each.verdict} ({_effects(each.tested)})" for each in below]
    lines.append(f"    - {scale(answer)}; {_figure(answer)}`python scripts/claims.py run {claim.name}`")
    return "\n".join(lines) + "\n"


def _line(answer: Answer) -> str:
    data = scale(answer).partition(",")[0]
    found = _effects(_with(Verdict.CONTRADICTED, answer))
    return f"- {answer.claim.statement}: {found}; {data}, {_figure(answer)}`{answer.claim.name}`"


def _effects(tests: Sequence[Tested]) -> str:
    return "; ".join(f"{each.test.says}, {each.test.compared()}: {effect_of(each.finding)}" for each in tests)


def _figure(answer: Answer) -> str:
    is_drawn = any(tested.measured for tested in answer.tested)
    return f"[figure]({FIGURES}/{answer.claim.name}.svg), " if is_drawn else ""


def _tested(tested: Tested) -> list[str]:
    found = tested.finding
    lines = [f"{tested.test.says}, {compared(tested)}: {effect_of(found)}, n = {counts(tested)}: {verdict_of(found)}"]
    return [*lines, described(tested.beside)] if tested.beside else lines
