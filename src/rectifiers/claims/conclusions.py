"""What the paper concludes from each table, and what the claims' runs show of it."""

from collections.abc import Iterable
from itertools import zip_longest

from rectifiers.claims.judge import ClaimResult
from rectifiers.claims.report import FOLDER, answer_rows


def conclusions(results: Iterable[ClaimResult]) -> dict[str, str]:
    """Return by the title of a table in TABLES.md the paper's conclusion, and beside it what each
    claim finds, with its verdict."""
    texts = {}
    for title, paper, words, _, verdicts in answer_rows(FOLDER / "conclusions.yaml", results)[1:]:
        found = [] if words == "not run" else words.split("<br>")
        pairs = zip_longest(found, verdicts.split("<br>"), fillvalue="Not judged yet")
        ours = ". ".join(map(": ".join, pairs)) if verdicts else "No claim tests this"
        texts[title] = f"**The paper:** {paper} **Ours:** {ours}."
    return texts
