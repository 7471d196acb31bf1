"""A claim's own page: its statement, tests, arms and searches; and the setting of runs in words."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from rectifiers.claims.archive import (
    Runs,
    arm_of,
    neighbours,
    runs_of,
    search_runs,
)
from rectifiers.claims.claims import Claim, Search, claims
from rectifiers.claims.comparisons import FEWEST, Test
from rectifiers.claims.judge import ClaimResult, Description, TestResult, Verdict, describe
from rectifiers.claims.searches import best_rate, rate_means
from rectifiers.results.documents import TEXT, listed, literal, markdown, render, without_html
from rectifiers.results.frame import SAME_IMAGES, length_of
from rectifiers.runs.identity import arm_hash
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Machine
from rectifiers.runtime.console import printable
from rectifiers.runtime.files import load_yaml

LARGEST_SMALL_PX = 16
HALVED_PX = 16  # what data.halved leaves of CIFAR-10's 32
UNTRAINED = 1e-20  # a learning rate below it moves no weight
CONTENTS = {"9cc199493aade0c6e1fea908bb89d1a1": "imagenette"}  # what a folder of images holds
COMMAND = "python scripts/claims.py run"
WHOSE = {
    "paper": "the paper's",
    "notes": "a reader's notes",
    "other": "other papers and courses",
    "ours": "our own",
}
ONLY_TRAINABILITY = (
    "{says}: trainability only. The error of {arm} is not clearly below that without an activation "
    "(difference: {gap})."
)
GAINS_NOTHING = "{arm} gains nothing over no activation here (difference of errors: {gap})."
MENTION = re.compile(r"\bclaim/(\w+)")
_SETTINGS: dict[str, str] = {}  # by run


def claim_page(result: ClaimResult, records: Sequence[TrainingRecord]) -> str:
    """Return a claim's own page: its statement, tests, arms, searches, and changes."""
    compared, effect = "measure: arms (their means)", "effect (95 % interval)"
    head = ("test", compared, "n", effect, "criterion", "finding")
    lines = []
    for test in result.tests:
        lines.append(_test_line(test))
        if test.trained and test.trained.finding.n:
            lines.append(_test_line(test.trained))
    lines += map(_test_line, result.descriptions)
    changes = load_yaml((TEXT / "changes.yaml").read_text())
    return render(
        "claim",
        result=result,
        claim=result.claim,
        reason=_with_links(reason(result)),
        whose=WHOSE[result.claim.whose],
        source=_with_links(result.claim.source),
        note=_with_links(result.claim.note),
        has_figure=has_figure(result),
        machines=_machines(result),
        lacks_identity=lacks_identity(result, records),
        beside_identity=beside_identity(result, records),
        command=f"{COMMAND} {result.claim.name}",
        setting=without_html(printable(scale(result, short=False))),
        tests=markdown(head, lines),
        arms=_arms(result.claim, records),
        changes=changes.get(result.claim.name, []),
    )


def reason(result: ClaimResult) -> str:
    """Return what follows a claim's verdict on its page: why, where its tests do not all say so."""
    claim, tests = result.claim, result.deciding_tests()
    if why := claim.undecided:
        return f": {why}"
    if result.verdict is Verdict.NOT_RUN:
        return ": no run of its tests is committed; the command below makes the runs"
    if result.verdict is Verdict.TOO_FEW:
        runs = _or(test.finding.n for test in result.tests)
        return f": there are runs of {runs} of the {claim.seeds} seeds that a verdict needs"
    says = "; ".join(test.comparison.says for test in tests)
    return f" in {len(tests)} of {len(result.tests)} tests: {says}" if tests else ""


def _machines(result: ClaimResult) -> str:
    """In how many seeds the arms of a test ran on different machines."""
    runs = runs_of(result.claim, result.records)
    mixed, seeds = set(), set()
    for test in result.tests:
        of_test = [runs[arm] for arm in test.comparison.arms()]
        for seed in set.intersection(*map(set, of_test)):
            seeds.add(seed)
            if _differ([arm[seed].provenance.machine for arm in of_test]):
                mixed.add(seed)
    if not mixed:
        return ""
    return (
        f"In {len(mixed)} of {len(seeds)} seeds the arms ran on different processors or threads, "
        "which round differently."
    )


def _differ(machines: Sequence[Machine]) -> bool:
    """Whether machines differ; older records do not say which instructions torch used."""
    places = {(machine.device, machine.cpu, machine.threads) for machine in machines}
    instructions = {machine.instructions for machine in machines if machine.instructions}
    return len(places) > 1 or len(instructions) > 1


def has_figure(result: ClaimResult) -> bool:
    return any(test.measured for test in result.tests)


def _test_line(result: Description) -> list[str]:
    comparison, finding = result.comparison, result.finding
    statistic, n, narrow, criterion = "mean", str(finding.n), "", "-"
    if isinstance(result, TestResult):
        statistic, n = result.comparison.statistic, result.counts()
        narrow, criterion = _narrow(result), _criterion(result.comparison)
    words = f"{comparison.in_words()}: {comparison.compared()}"
    if statistic != "mean":
        words += f" ({statistic} {'of' if statistic == 'share' else 'over'} seeds)"
    elif comparison.minus and result.measured:
        means = [f"{fmean(values):.3g}" for values in zip(*result.measured, strict=True)]
        words += f" ({listed(means)})"
    effect = result.text() + narrow
    found = finding.verdict.shown
    if finding.rate_step:
        found += f": {finding.rate_step}, more than the effect"
    return [comparison.says, words, n, effect, criterion, found]


def _narrow(result: TestResult) -> str:
    """The 90 % interval, where it is what decides; else nothing."""
    decided = [Verdict.NO_EFFECT, Verdict.INCONCLUSIVE]
    if result.comparison.supported.side == "within":
        decided.append(Verdict.SUPPORTED)
    elif result.comparison.negligible() is None:
        return ""
    if result.finding.verdict not in decided:
        return ""

    low, high = result.finding.narrow
    return f"<br>90 % interval: {low:.3g} to {high:.3g}"


def _criterion(test: Test) -> str:
    """The criterion in words: of a share in percent, and with the effects too small to matter."""
    if test.statistic == "share":
        regions = (("seen", test.supported), ("opposite", test.contradicted))
        return ", ".join(f"{name} {x.side} {100 * x.bounds[0]:g} %" for name, x in regions)
    region = test.negligible()
    bounds = " to ".join(f"{bound:.3g}" for bound in region.bounds) if region else ""
    negligible = f", no difference that matters within {bounds}" if bounds else ""
    return f"seen {test.supported}, opposite {test.contradicted}{negligible}"


def _with_links(text: str) -> str:
    """Return a text with links where it mentions a claim, as in `claim/signal`."""
    names = {claim.name for claim in claims()}
    return MENTION.sub(lambda m: f"[{m[1]}](../{m[1]}/page.md)" if m[1] in names else m[0], text)


def _arms(claim: Claim, records: Sequence[TrainingRecord]) -> str:
    """The table of the arms, with what their searches measured at each learning rate."""
    if not claim.arms:
        return ""
    search, head = claim.search, ["arm", "overrides"]
    arms = search.with_others(claim.arms) if search else claim.arms
    rows = []
    for arm, overrides in arms.items():
        name = arm if arm in claim.arms or not overrides else f"{arm} (search only)"
        rows.append([name, f"`{' '.join(overrides)}`" if overrides else "none"])
    if not search:
        return markdown(head, rows)

    count = len(search.seeds)
    seeds = f"mean of {count} seeds" if count > 1 else "one seed"
    head += [f"{search.measured_by()} by learning rate, {seeds}", "best learning rate"]
    runs = search_runs(claim, records)
    for arm, row in zip(arms, rows, strict=True):
        row += ["-", "-"] if arm in claim.arm_seeds else _search_cells(search, arm, runs)
    return markdown(head, rows)


def _search_cells(search: Search, arm: str, runs: Runs) -> list[str]:
    """What the search of an arm measured at each learning rate, and the best rate."""
    means, best = rate_means(search, arm, runs), best_rate(search, arm, runs)
    by_rate = ", ".join(f"{rate:g}: {_mean(mean)}" for rate, mean in means.items())
    if best is None:
        return [by_rate, "-"]
    rate, grid = best[1], search.rates_of(arm)
    if rate not in (grid[0], grid[-1]):
        return [by_rate, f"{rate:g}"]
    why = f": {search.ends[arm]}" if arm in search.ends else ""
    return [by_rate, f"{rate:g} (an end of its grid{why})"]


def _mean(mean: float | None) -> str:
    if mean is None:
        return "not run"
    return "diverged" if mean == math.inf else f"{mean:.3g}"


def scale(result: ClaimResult, short: bool = True) -> str:
    """Return data, network and length of a claim's runs; `short` in few words."""
    runs = result.records
    if not runs:
        return "-"
    data = sorted(
        f"{name} ({classes} classes) at {size}"
        for name, classes, size in {
            (data_of(run), run.network.classes, size_of(run)) for run in runs
        }
    )
    if not short and "imagenette" in map(data_of, runs):
        data.append("photographs of 224 px (larger scales are enlargements)")

    by_model: dict[str, list[TrainingRecord]] = {}
    for run in runs:
        by_model.setdefault(literal(str(run.choices.get("model"))), []).append(run)
    networks = []
    for model, of_model in sorted(by_model.items()):
        network = f"{model} of {_or(run.network.depth for run in of_model)} layers at width "
        network += _or(run.science["model"]["width"] for run in of_model)
        if not short:
            network += f" ({_or(run.network.parameters for run in of_model)} parameters)"
        networks.append(network)

    length, rate = lengths(runs), max(run.science["optim"]["lr"] for run in runs)
    is_untrained = rate < UNTRAINED
    if short:
        return ", ".join([*data, *networks, "untrained" if is_untrained else length])

    images = ", ".join(sorted({f"{run.images.train:,}" for run in runs}))
    length += f", each of {images} images"
    if is_untrained:
        length = f"untrained ({length} at a learning rate of {rate:g})"
    same = [SAME_IMAGES] if any(run.images.test is None for run in runs) else []
    return ", ".join([*data, *networks, *_fc_std(runs), length, *same])


def lengths(runs: Iterable[TrainingRecord]) -> str:
    """Return how long the runs train, as in `75 epochs (4,950 steps)`."""
    by_length = sorted(runs, key=lambda run: run.science["trainer"]["max_epochs"])
    return " or ".join(dict.fromkeys(map(length_of, by_length)))


def is_small(result: ClaimResult) -> bool:
    """Return whether all of a claim's runs have images of digits, or of at most 16 px, enlarged or
    not."""
    return bool(result.records) and all(
        data_of(run).startswith("digits") or _content_px(run) <= LARGEST_SMALL_PX
        for run in result.records
    )


def size_of(run: TrainingRecord) -> str:
    """Return the size of a run's images, as in `16 px, enlarged to 32 px`."""
    crop, content = run.science["data"]["crop_px"], _content_px(run)
    return f"{crop} px" if crop <= content else f"{content} px, enlarged to {crop} px"


def _content_px(run: TrainingRecord) -> int:
    data = run.science["data"]
    return min(data["crop_px"], HALVED_PX) if data.get("halved") else data["crop_px"]


def lacks_identity(result: ClaimResult, records: Iterable[TrainingRecord]) -> bool:
    """Return whether a claim compares activations by their error, and a network without one has
    run at its setting, here or for another claim, for fewer seeds than an interval needs."""
    claim = result.claim
    compared = {_activation(claim, arm) for test in _by_error(claim) for arm in test.arms()}
    if len(compared) < 2 or not result.records:
        return False
    controls = {(_setting(run), run.seed) for run in records if _is_identity(run)}
    seeds = Counter(setting for setting, _ in controls)
    return all(seeds[setting] < FEWEST["mean"] for setting in _settings(result.records))


def beside_identity(result: ClaimResult, records: Sequence[TrainingRecord]) -> list[str]:
    """Return what a network without an activation, of the same setting and seeds, leaves of each
    comparison of two others by their error."""
    by_error = _by_error(result.claim)
    compared = [
        (test, test.minus, found)
        for test, found in zip(result.claim.tests, result.tests, strict=True)
        if test in by_error and test.minus and not test.since
    ]
    if not compared or not result.records:
        return []

    at_other_rates = {other for others in neighbours().values() for other in others}
    identity = {
        (_setting(run), run.seed): run
        for run in records
        if _is_identity(run) and arm_of(run) not in at_other_rates
    }
    runs = runs_of(result.claim, records)
    lines = []
    for test, minus, found in compared:
        # the arm of the lower error first
        order = (test.of, minus) if found.finding.effect < 0 else (minus, test.of)
        for arm, words in zip(order, (ONLY_TRAINABILITY, GAINS_NOTHING), strict=True):
            pairs = [
                [run, identity[_setting(run), seed]]
                for seed, run in runs[arm].items()
                if not _is_identity(run) and (_setting(run), seed) in identity
            ]
            to_identity = test.model_copy(update={"of": arm, "minus": "no activation"})
            gap = describe(to_identity, pairs)
            if gap.finding.n >= FEWEST["mean"] and not gap.finding.high < 0:
                lines.append(words.format(says=test.says, arm=arm, gap=gap.text()))
    return list(dict.fromkeys(lines))  # two tests may share an arm


def _by_error(claim: Claim) -> list[Test]:
    """The tests that compare arms by their errors."""
    return [t for t in claim.tests if t.measure.startswith("error") and len(t.arms()) > 1]


def _is_identity(run: TrainingRecord) -> bool:
    return run.choices.get("activation") == "identity"


def _settings(runs: Iterable[TrainingRecord]) -> set[str]:
    return set(map(_setting, runs))


def _setting(run: TrainingRecord) -> str:
    """What runs share that differ in activation, learning rate and seed alone; kept by run, for
    every claim asks it of every run."""
    if run.run not in _SETTINGS:
        _SETTINGS[run.run] = arm_hash(run.science, "activation", "optim.lr")
    return _SETTINGS[run.run]


def _activation(claim: Claim, arm: str) -> str:
    """What an arm says of the activation; empty where it is that of the claim's setting."""
    return " ".join(x for x in claim.arms[arm] if x.startswith("activation"))


def _fc_std(runs: Iterable[TrainingRecord]) -> list[str]:
    """With which std the fully connected layers start, of networks of rows that have several."""
    stds = set()
    for run in runs:
        rows = run.science["model"].get("rows") or ()
        if sum("linear" in row for row in rows) > 1:
            stds.add("small" if run.science["init"].get("fc_std") else "the initialiser's")
    return [f"std of the fully connected layers: {' or '.join(sorted(stds))}"] if stds else []


def data_of(run: TrainingRecord) -> str:
    """The option of data; of a folder, what it holds."""
    return CONTENTS.get(str(run.provenance.data), literal(str(run.choices.get("data"))))


def _or(numbers: Iterable[float]) -> str:
    """The distinct numbers in order, as in `4, 11 or 30`."""
    *first, last = (f"{number:,}".removesuffix(".0") for number in sorted(set(numbers)))
    return f"{', '.join(first)} or {last}" if first else last
