"""What the search of a claim's learning rates found, and whether its arms have these rates."""

import math
from statistics import fmean

from rectifiers.claims.archive import Runs
from rectifiers.claims.claims import RATE, Claim, Search, name_of
from rectifiers.claims.measures import has_diverged
from rectifiers.runtime.errors import InputError


def rate_means(search: Search, arm: str, runs: Runs) -> dict[float, float | None]:
    """Return by learning rate the mean over the search's seeds of what it chooses by; infinity
    where a run diverged, None where one is missing."""
    means: dict[float, float | None] = {}
    for rate in search.rates_of(arm):
        made = runs.get(name_of(arm, rate), {})
        records = [made[seed] for seed in search.seeds if seed in made]
        values = [search.value(record) for record in records]
        numbers = [value for value in values if value is not None]
        if len(records) < len(search.seeds):
            means[rate] = None
        elif len(numbers) < len(values) or any(map(has_diverged, records)):
            means[rate] = math.inf
        else:
            means[rate] = fmean(numbers)
    return means


def best_rate(search: Search, arm: str, runs: Runs) -> tuple[float, float] | None:
    """Return the lowest mean with its rate, the lower one of equals; None while a run is
    missing."""
    means = rate_means(search, arm, runs)
    pairs = [(mean, rate) for rate, mean in means.items() if mean is not None]
    return min(pairs) if len(pairs) == len(means) else None


def check_rates(claim: Claim, runs: Runs) -> None:
    """Check that every arm has the rate that its search found best, and is itself the best of what
    it was chosen from, as far as the `runs` of the search are there."""
    if (search := claim.search) is None:
        return
    for arm, overrides in claim.main_arms().items():
        if (best := best_rate(search, arm, runs)) is None:
            continue

        mean, rate = best
        for other in search.others.get(arm, {}):
            if (pair := best_rate(search, other, runs)) is not None and pair[0] < mean:
                raise InputError(
                    f"claim/{claim.name}: {other} is better than arm {arm}; exchange them"
                )

        grid = search.rates_of(arm)
        if rate in (grid[0], grid[-1]) and arm not in search.ends:
            raise InputError(
                f"claim/{claim.name}: the best rate of arm {arm}, {rate:g}, is an end of its grid; "
                "give rates beyond it in search.more_rates, or say in search.ends why not"
            )

        if not any(x.startswith(RATE) and float(x.removeprefix(RATE)) == rate for x in overrides):
            raise InputError(
                f"claim/{claim.name}: arm {arm} is to have {RATE}{rate:g}, which its search found "
                "best; give that, and run the claim again"
            )
