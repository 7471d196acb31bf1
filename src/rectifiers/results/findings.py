"""`results/FINDINGS.md`: what the claims found, as prominently what they could not find, and what
is otherwise."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from rectifiers.results.claims import Answer, Claim, Tested
from rectifiers.results.claims_table import FIGURES
from rectifiers.results.verdicts import Verdict
from rectifiers.results.wording import (
    compared,
    counts,
    described,
    effect_of,
    short_scale,
    verdict_of,
)
from rectifiers.runtime.errors import InputError

CHOSEN = Path(__file__).with_name("findings.yaml")
HEAD = """# Findings

Made by `make claims` from the committed records; do not edit. First ten findings, then everything else that is
inconclusive, contradicted or not run. [CLAIMS.md](CLAIMS.md) has every claim with its source, arms, learning rates,
criterion and what the words mean; `python scripts/claims.py run <name>` runs one. An effect is a mean over seeds with
its 95 % interval, a median or a share; before a difference of means stand those of its two arms. Beside an inconclusive
test stands how many seeds would decide at the observed effect and spread, and the verdict that they would give; "-" where
none would. All of it is small: a verdict speaks of its data and network, not of ImageNet.
"""  # noqa: E501


def chosen() -> list[str]:
    """Return the names of the claims that the page begins with."""
    return list(_chosen())


def _named() -> set[str]:
    """The names of all claims that the ten findings print."""
    return {name for first, below in _chosen().items() for name in (first, *below)}


def _chosen() -> dict[str, list[str]]:
    """The claims that the page begins with, each with those that stand below it."""
    return yaml.safe_load(CHOSEN.read_text())


def render_markdown(answers: Sequence[Answer]) -> str:
    """Return the page: the chosen claims, then all others that are inconclusive, contradicted, or
    not run.

    Raises:
        InputError: where a chosen claim does not exist.
    """
    by_name = {each.claim.name: each for each in answers}
    for name in (name for first, below in _chosen().items() for name in (first, *below)):
        if name not in by_name:
            raise InputError(
                f"{CHOSEN.name} names {name}, which is not a claim; give one of "
                "conf/experiment/claim"
            )
    others = [each for each in answers if each.claim.name not in _named()]
    parts = [HEAD]
    for i, (name, below) in enumerate(_chosen().items(), start=1):
        lines = [_line(f"{i}.", by_name[name], "python scripts/claims.py run ")]
        parts.append(
            "\n".join([*lines, *(f"    {_line('-', by_name[each])}" for each in below)]) + "\n"
        )
    for title, verdict in (
        ("Inconclusive", Verdict.INCONCLUSIVE),
        ("Contradicted", Verdict.CONTRADICTED),
    ):
        lines = [_line("-", each) for each in others if each.verdict is verdict]
        parts.append(f"## {title}\n\n" + ("\n".join(lines) or "None.") + "\n")
    left = [each.claim for each in others if each.verdict is Verdict.NOT_RUN]
    parts.append("## Not run\n\nWhat is still to be run, or cannot be.\n")
    parts.append(
        "".join(f"- {claim.statement}: {_missing(claim)}\n" for claim in left) or "None.\n"
    )
    return "\n".join(parts)


def _missing(claim: Claim) -> str:
    return claim.not_run or f"`python scripts/claims.py run {claim.name}`"


def _line(marker: str, answer: Answer, command: str = "") -> str:
    """Return a claim in one line: its sentence, its verdict, the effects of the tests, and where
    they are from."""
    claim = answer.claim
    found = [_tested(each, answer.verdict) for each in answer.tested]
    is_drawn = any(tested.measured for tested in answer.tested)
    figure = f"[figure]({FIGURES}/{claim.name}.svg), " if is_drawn else ""
    words = "; ".join([*found, short_scale(answer)])
    first = f"{marker} **{claim.statement}: {answer.verdict}.** {words[0].upper()}{words[1:]}"
    return f"{first}; {figure}`{command}{claim.name}`"


def _tested(tested: Tested, verdict: Verdict) -> str:
    """Return a test in words, with its verdict where that is not the claim's, and the seeds that
    would decide."""
    found, beside = tested.finding, tested.beside
    words = f"{tested.test.says}, {compared(tested)}: {effect_of(found)}, n = {counts(tested)}"
    words += f": {verdict_of(found)}".removeprefix(f": {verdict}")
    return f"{words} [{described(beside)}]" if beside else words
