"""The pages that are made from committed records, each written, or compared with what it would be:
the tables, the claims with their figures, and what README and the first tutorial show. `results` is
the folder of results in the checkout."""

import functools
import io
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from rectifiers.claims import archive as claim_records
from rectifiers.claims import documents as claim_documents
from rectifiers.claims.claim_page import has_figure
from rectifiers.claims.claims import Claim, claims
from rectifiers.claims.criteria import check_criteria
from rectifiers.claims.judge import ClaimResult, answer
from rectifiers.claims.readme import readme_tables
from rectifiers.claims.searches import check_rates
from rectifiers.results import documents, tables
from rectifiers.results.frame import EXPERIMENTS, described
from rectifiers.results.frame import known as known_experiments
from rectifiers.results.run_tables import print_record
from rectifiers.runs import record as records
from rectifiers.runs.identity import arm_hash, science
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import say
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF

Outcome = tuple[Any, str]  # of a command: plain data for --json, and the same in words


@functools.cache
def claim_runs(results: Path) -> list[TrainingRecord]:
    """Return the records of the claims' runs, which take seconds to read."""
    return claim_records.load(results / "claims")


@functools.cache
def claim_results(results: Path) -> list[ClaimResult]:
    """Return the claims in the order of their names, judged by their records."""
    return [answer(claim, claim_runs(results)) for claim in claims()]


def write_tables(results: Path, check: bool) -> Outcome:
    """Write results/TABLES.md and the list of experiments that it shows."""
    documents.write_or_check({EXPERIMENTS: experiments()}, check, "make table")
    known_experiments.cache_clear()

    shown = tables.load(results / "records") + claim_runs_of_tables(results)
    made = tables.document(shown, claim_documents.conclusions(claim_results(results)))

    path = results / "TABLES.md"
    documents.write_or_check({path: tables.render_markdown(made)}, check, "make table")
    return {"path": str(path)}, "" if check else str(path)


def claim_runs_of_tables(results: Path) -> list[records.Record]:
    """Return the claims' runs that stand in TABLES.md, each as a run of its row's experiment."""
    ensembles = claim_records.load_ensembles(results / "claims")
    return claim_documents.for_tables(claim_runs(results), ensembles)


def experiments() -> str:
    """Return the text of experiments.yaml, as conf/ says it: the hashes of the paper's rows, the
    protocols' settings by data, the sizes of Table 3's networks."""
    from rectifiers.cli.composition import WITHOUT_LOCAL, composed  # here: it loads Hydra
    from rectifiers.models.rows import size

    registry: dict[str, dict[str, Any]] = {"experiments": {}, "settings": {}, "networks": {}}
    for path in sorted((CONF / "experiment").rglob("*.yaml")):
        name = path.relative_to(CONF / "experiment").with_suffix("").as_posix()
        config = composed([f"experiment={name}", WITHOUT_LOCAL])
        registry["experiments"][name] = described(science(config))

    for path in sorted((CONF / "data").glob("*.yaml")):
        # calibration has five protocols at once
        config = composed([f"data={path.stem}", "evaluation=calibration", WITHOUT_LOCAL])
        protocols = config.evaluation.protocols
        registry["settings"][path.stem] = {name: p.as_dict() for name, p in protocols.items()}

    for option in tables.TABLE_3.values():
        config = composed(["data=imagenet", f"model={option}", WITHOUT_LOCAL])
        registry["networks"][option] = size(config.model.layers(1000), channels=3, input_px=224)
    return yaml.safe_dump(registry, sort_keys=True)


def write_claims(results: Path, check: bool) -> Outcome:
    """Write CLAIMS.md, FINDINGS.md, LEAK.md, REPORT.md, docs/lessons.md, and the page, runs and
    figure of each claim."""
    folder, command = results / "claims", "python scripts/report.py claims"
    arms = {claim_records.arms_path(claim): arms_text(claim) for claim in claims()}
    documents.write_or_check(arms, check, command)
    claim_records.arm_hashes.cache_clear()

    problem = check_claims(claim_runs(results))
    texts = arms | claim_texts(results)
    existing = claim_records.strays(folder)
    documents.write_or_check(texts, check, command, claim_drawings(results), existing)
    if problem and check:
        raise InputError(problem)
    if problem:
        say(problem)

    path = str(results / "CLAIMS.md")
    verdicts = {result.claim.name: str(result.verdict) for result in claim_results(results)}
    return {"path": path, "verdicts": verdicts}, "" if check else path


def claim_texts(results: Path) -> dict[Path, str]:
    """Return the pages and tables of the claims by their paths."""
    from rectifiers.claims import leak

    runs, judged = claim_runs(results), claim_results(results)
    texts = {results / p: text for p, text in claim_documents.pages(judged, runs).items()}
    texts[results / "LEAK.md"] = leak.page(runs)
    texts[results.parent / "docs" / "lessons.md"] = claim_documents.lessons_page(judged)
    for claim in claims():
        path = results / "claims" / claim.name / "runs.csv"
        texts[path] = claim_documents.runs_csv(claim, runs)
    return texts


def claim_drawings(results: Path) -> dict[Path, documents.Drawing]:
    """Return the figures of the claims by their paths, and the picture of slopes."""
    from rectifiers.claims import figures, leak

    drawings = {}
    for result in filter(has_figure, claim_results(results)):
        path = results / "claims" / result.claim.name / "figure.svg"
        draw = functools.partial(figures.figure, result)
        drawings[path] = documents.Drawing(figures.description(result), draw)

    lines = leak.lines(claim_runs(results))
    for page in figures.INKS:
        path = results.parent / "docs" / "images" / f"leak-{page}.svg"
        draw = functools.partial(leak.picture, lines, page)
        drawings[path] = documents.Drawing(leak.description(lines), draw)
    return drawings


def arms_text(claim: Claim) -> str:
    """Return the text of the file that holds the hashes of a claim's arms, which are composed where
    the claim's file has changed."""
    from rectifiers.cli.composition import compose_job

    path = claim_records.arms_path(claim)
    text = path.read_text() if path.exists() else ""
    head = f"claim_file: {claim_records.digest(claim)}\n"
    if text.startswith(head):
        return text

    arms = {}
    for arm, overrides in {**claim.arms, **claim.searched()}.items():
        config, _ = compose_job((f"claim={claim.name}", *overrides))
        arms[arm] = arm_hash(science(config))
    return head + yaml.safe_dump({"arms": arms}, sort_keys=True)


def check_claims(runs: Sequence[TrainingRecord]) -> str:
    """Check that each criterion is older than its runs, that each arm has the rate that its search
    found best, and that it starts from the weights that the claim names; return why the first
    cannot be said, or nothing."""
    for claim in claims():
        check_rates(claim, claim_records.search_runs(claim, runs))
        claim_records.check_starts(claim, runs)
    unknown = check_criteria((claim, claim_records.runs_of(claim, runs)) for claim in claims())
    if not unknown:
        return ""
    return (
        f"{len(unknown)} commits that made records are not in this clone, so that nobody can say "
        "whether their criteria stood before the runs; call git fetch --unshallow"
    )


def write_readme(results: Path, check: bool) -> Outcome:
    """Write the run and the picture that README.md and the first tutorial show, and README's
    tables."""
    from rectifiers.claims import figures

    lines, readme = example_run(results), results.parent / "README.md"
    slopes = next(i for i, line in enumerate(lines) if line.startswith("layer "))
    shown_in = {
        readme: [*lines[:5], *lines[slopes : slopes + 2], "..."],
        results.parent / "docs" / "tutorials" / "first-run.md": lines,
    }
    texts = {}
    for path, shown in shown_in.items():
        block = "\n".join(["```", *shown, "```\n"])
        texts[path] = documents.filled(path.read_text(), "make train", block)
    for name, block in readme_tables(claim_results(results), claim_runs(results)).items():
        texts[readme] = documents.filled(texts[readme], name, block)

    curves = figures.pictured_curves(claim_runs(results))
    words = figures.picture_description(curves)
    pictures = {}
    for page in figures.INKS:
        path = results.parent / "docs" / "images" / f"thirty-layers-{page}.svg"
        draw = functools.partial(figures.picture, curves, page)
        pictures[path] = documents.Drawing(words, draw)

    documents.write_or_check(texts, check, "python scripts/report.py readme", pictures)
    paths = [str(path) for path in (*texts, *pictures)]
    return {"paths": paths}, "" if check else "\n".join(paths)


def example_run(results: Path) -> list[str]:
    """Return the lines that `make train` prints of its run."""
    record = records.parse(lzma.decompress((results / "make_train.json.xz").read_bytes()))
    printed = io.StringIO()
    print_record(record, Console(file=printed, width=80))
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    return [*lines, f"runs/{record.run}/record.json"]
