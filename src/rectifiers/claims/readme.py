"""README's tables of claims: what the paper says, our questions, and what we see."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from rectifiers.claims.claim_page import data_of, is_small, lacks_identity, lengths, size_of
from rectifiers.claims.documents import answers, independent_groups, words_of
from rectifiers.claims.judge import NO_VERDICT, ClaimResult, Verdict
from rectifiers.results.documents import TEXT, listed, markdown
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.files import load_yaml
from rectifiers.runtime.schema import JsonObject


def readme_tables(
    results: Sequence[ClaimResult], records: Sequence[TrainingRecord]
) -> dict[str, str]:
    """Return README's two tables and its sentence on all claims of the paper, by their blocks.

    A claim that compares activations by error, without runs of a network that has none, is left
    out: its difference may be one of trainability alone."""
    entries = load_yaml((TEXT / "readme.yaml").read_text())
    by_name = {result.claim.name: result for result in results}
    lacking = {name for name, result in by_name.items() if lacks_identity(result, records)}
    heads = {"paper": "the paper says", "found": "our question"}
    tables = {}
    for block, head in heads.items():
        rows = [row for entry in entries[block] for row in readme_rows(entry, by_name, lacking)]
        tables[block] = markdown([head, "what we see (95 % interval)", "where", "page"], rows)
    return {**tables, "count": _count(results, lacking)}


def readme_rows(
    entry: JsonObject, by_name: Mapping[str, ClaimResult], lacking: Collection[str] = ()
) -> list[list[str]]:
    """A row for each claim that has a verdict: what is said, what we see, where, and a link with
    the verdict, or with "exploratory" where the words are of no test; one row where none has, or
    where a page answers; none for claims in `lacking`."""
    if "page" in entry:
        return [[entry["says"], entry["here"], entry.get("where", ""), f"[page]({entry['page']})"]]
    texts = {name: words for name, words in entry["find"].items() if name not in lacking}
    found = answers(texts, by_name)
    judged = [(words, by_name[name]) for name, words, _ in found if words]
    if not found:
        rows = []
    elif judged:
        is_judged = not entry.get("exploratory")
        rows = [[words, _where(each), _verdict_link(each, is_judged)] for words, each in judged]
    else:
        rows = [["Not judged yet.", "", _verdict_link(by_name[found[0][0]])]]
    return [["" if i else entry["says"], *row] for i, row in enumerate(rows)]


def _verdict_link(result: ClaimResult, is_judged: bool = True) -> str:
    """A link with the verdict, and how many of several tests give it."""
    page = f"(results/claims/{result.claim.name}/page.md)"
    if not is_judged:
        return f"[{Verdict.EXPLORATORY.shown}]{page}"
    part = result.deciding_part()
    return f"[{result.shown()}]{page}" + (f" ({part})" if part else "")


def _where(result: ClaimResult) -> str:
    """Data, layers, width and length of a claim's runs, in few words."""
    runs = result.records
    data = sorted(
        {f"{data_of(run)} ({run.network.classes} classes) at {size_of(run)}" for run in runs}
    )
    layers = sorted({run.network.depth for run in runs})
    widths = sorted({f"{run.science['model']['width']:g}" for run in runs})
    return f"{listed(data)}, {listed(layers)} layers, width {listed(widths)}, {lengths(runs)}"


def _count(results: Iterable[ClaimResult], lacking: Collection[str]) -> str:
    """How many of the paper's claims, on images of 32 px and more, have each verdict, how many of
    those that are seen lack a network without an activation, and how many share no run."""
    papers = [
        result
        for result in results
        if result.claim.whose == "paper" and not result.claim.lesson and not is_small(result)
    ]
    numbers = Counter(result.shown() for result in papers)
    shown = [f"{numbers[words]} {words}" for words in words_of(papers)]
    seen = [result for result in papers if result.verdict is Verdict.SUPPORTED]
    unchecked = [
        f"[{result.claim.name}](results/claims/{result.claim.name}/page.md)"
        for result in seen
        if result.claim.name in lacking
    ]
    without = (
        f"Of the {len(seen)} that are seen, {len(unchecked)} compare activations, but lack "
        f"enough runs without any ({listed(unchecked)}). "
    )
    judged = [result for result in papers if result.verdict not in NO_VERDICT]
    return (
        f"All {len(papers)} claims of the paper on images of 32 px and more: {', '.join(shown)}. "
        f"{without if unchecked else ''}Many claims share runs: the {len(judged)} with a verdict "
        f"fall into {independent_groups(judged)} groups that have no run in common.\n"
    )
