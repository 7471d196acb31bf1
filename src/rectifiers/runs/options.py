"""What conf/ offers: its groups, the options of each, and the keys that these have."""

import functools

from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.schema import flat

NO_GROUPS = ("hydra", "local")  # options of Hydra's own groups; this machine's own defaults
GROUPS = sorted(
    path.name for path in CONF.iterdir() if path.is_dir() and path.name not in NO_GROUPS
)


def options(group: str) -> list[str]:
    """Return the files that `group` can be chosen from, without their suffix."""
    place = CONF / group
    paths = (path.relative_to(place).with_suffix("") for path in place.rglob("*.yaml"))
    return sorted(path.as_posix() for path in paths)


def options_text() -> str:
    """Return the groups with their options, a line each, for --help: what a network is made of
    first, and of the claims, which are many, their number."""
    first = ("data", "model", "activation", "init")
    lines = []
    for group in (*first, *(group for group in GROUPS if group not in first)):
        names = options(group)
        if group == "claim":
            pages = "results/CLAIMS.md and docs/lessons.md"
            lines.append(f"claim: the settings of {len(names)} claims, which {pages} list")
        else:
            lines.append(f"{group}: {', '.join(names)}")
    return "\n".join(lines)


@functools.cache
def keys_of_conf() -> dict[str, list[str]]:
    """Return the dotted keys of conf/, with the options that have each; none for a key that every
    run has."""
    every_run = load_yaml((CONF / "train.yaml").read_text())
    del every_run["defaults"]
    keys: dict[str, list[str]] = {key: [] for key in (*GROUPS, *flat(every_run))}

    for path in sorted(CONF.glob("*/**/*.yaml")):
        group = path.relative_to(CONF).parts[0]
        if group in ("claim", "experiment", "local"):  # which declare no key of their own
            continue
        text = path.read_text()
        config = load_yaml(text) or {}
        config.pop("defaults", None)
        prefix = "" if "@package _global_" in text else f"{group}."
        for key in flat(config, prefix):
            keys.setdefault(key, []).append(f"{group}={path.stem}")
    return keys
