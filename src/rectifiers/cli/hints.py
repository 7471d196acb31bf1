"""One line of help for a command line that Hydra refuses: which key or option was meant."""

import difflib
import functools
import re
from collections.abc import Sequence

from hydra.errors import OverrideParseException

from rectifiers.runs.sections import DOTTED_NAME, options
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.schema import JsonObject
from rectifiers.runtime.words import meaning, one_after_other

GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")
MANY = 30  # options, which one line does not name
OPTIONAL = ("callbacks", "claim", "debug", "experiment", "hparams_search", "logger")
EMPTY = ("", "null", "{}")  # what chooses no option of a group


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse a key that is written as a flag, as in --epochs=3, and a group without an option."""
    for place, argument in enumerate(arguments):
        key, equals, value = argument.partition("=")
        reason = ""
        if argument in ("--cfg", "-c") and {"--multirun", "-m"} & set(arguments):
            reason = f"{argument} shows one configuration; leave out --multirun"
        if key.startswith("--") and (remedy := _of_flag(key, value)):
            reason = f"{argument} is not a flag; {remedy}"
        elif key.startswith("+") and key.lstrip("+") in GROUPS and value:
            reason = f"{argument} adds nothing to the groups that are there; leave out the plus"
        elif argument in ("--multirun", "-m") and 0 < place < len(arguments) - 1:
            reason = f"{argument} stands between overrides; put it first or last"
        elif key in GROUPS and equals and (wrong := _no_name(key, value)):
            others = ", or null" if key in OPTIONAL else ""
            reason = f"invalid {key}: {wrong} (choose from {options(key)}{others})"
        elif key in GROUPS and re.fullmatch(r"[+-]?[\d.]+|true|false", value):
            reason = _of_option(key, value)
        elif key == "checkpoint" and not value.startswith("{"):  # a section, and no file
            reason = f"{argument} is not usable; {meaning('resume')}"
        elif equals and not key.strip("+~"):
            reason = f"{argument} has no key; give <key>={value}"
        elif key == "hydra.sweeper.n_trials" and re.fullmatch(r"0+|-\d+", value):
            reason = f"{argument} searches nothing; give a whole number at least 1"
        if reason:
            raise InputError(reason, status=2, on_all_ranks=True)


def _no_name(group: str, value: str) -> str | None:
    """Return what of a group's value can be no option's name, or None. Null is no option, and can
    stand where a group may be left out."""
    may_be_empty = group in OPTIONAL
    if value in EMPTY:
        return None if may_be_empty else value or "empty"
    if value.startswith("{") and may_be_empty:
        return value
    names = value.strip("[]").split(",") if value.startswith("[") and "$" not in value else []
    for name in (part.strip(" '\"") for part in names):
        is_name = re.fullmatch(r"([^\W\d][\w./-]*)?", name) and name not in ("true", "false")
        if not is_name or (name == "null" and not may_be_empty):
            return name
    return None


def explain(error: Exception) -> str:
    """Return what Hydra refuses in one line."""
    text = str(error)
    if isinstance(error, OverrideParseException):
        return _of_grammar(str(error.override))
    if match := re.search(r"Could not (?:find|load) '([\w/]+?)/([^']+)'", text):
        group, option = match.groups()
        if group in GROUPS:
            return _of_option(group, option)
    if match := re.search(r"Could not override '([^']+)'", text):
        return _of_key(match[1])
    if text.startswith("Ambiguous value for argument"):
        typed = text.partition("'")[2].partition("'")[0]
        return f"{typed} gives several values; add --multirun to run each, or give one"
    lines = [line for line in text.splitlines() if not line.startswith("To append")]
    return " ".join(" ".join(lines).split())


@functools.cache
def keys_of_conf() -> dict[str, list[str]]:
    """Return the dotted keys of conf/, with the options that have each; none for a key that every
    run has."""
    every_run = load_yaml((CONF / "train.yaml").read_text())
    keys: dict[str, list[str]] = {key: [] for key in (*GROUPS, *_dotted(every_run))}
    for group in set(GROUPS) - {"claim", "experiment"}:  # which declare no key of their own
        for path in sorted((CONF / group).rglob("*.yaml")):
            text = path.read_text()
            prefix = "" if "@package _global_" in text else f"{group}."
            for key in _dotted(load_yaml(text) or {}, prefix):
                keys.setdefault(key, []).append(f"{group}={path.stem}")
    return keys


def _dotted(config: JsonObject, prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key, value in config.items():
        if key != "defaults":
            keys.append(f"{prefix}{key}")
            keys += _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else []
    return keys


def _of_option(group: str, option: str) -> str:
    known = options(group).split(", ")
    meant = meaning(f"{group}={option}")
    dotted = option.removeprefix("./").replace("/", ".")
    near = difflib.get_close_matches(option, known, n=1, cutoff=0.5)
    if "/" in option and "." in option and DOTTED_NAME.fullmatch(dotted):  # of a file in a folder
        near = [dotted]
    if meant is None and near:
        meant = f"did you mean {group}={near[0]}?"
    listed = f"the options are: {', '.join(known)}" if len(known) <= MANY else "see --help"
    return f"{group}={option} is not known; {one_after_other(meant, listed)}"


def _of_key(key: str) -> str:
    having = keys_of_conf().get(key)
    if having:
        return f"{key} belongs to {' or '.join(having)}, which is not chosen; add that, too"
    if meant := meaning(key):
        return f"{key} is not known; {meant}"
    if near := near_keys(key):
        return f"{key} is not known; did you mean {' or '.join(map(_with_options, near))}?"
    return f"{key} is not known; --help prints all keys"


def _of_flag(flag: str, value: str) -> str | None:
    """Return what a key that is written as a flag means; None for a flag of Hydra's."""
    key = flag.removeprefix("--").replace("-", "_")
    if meant := meaning(key):
        is_key = value and meant.startswith("did you mean") and "=" not in meant
        return f"{meant[:-1]}={value}?" if is_key else meant
    near = near_keys(key) if value else []
    return f"did you mean {' or '.join(f'{name}={value}' for name in near)}?" if near else None


def _with_options(key: str) -> str:
    """Return a key, with the options that have it where most of its group do not."""
    having = keys_of_conf().get(key, [])
    group = key.partition(".")[0]
    is_rare = having and 2 * len(having) < len(options(group).split(", "))
    return f"{key} of {' or '.join(having)}" if is_rare else key


def _of_grammar(override: str) -> str:
    if "=" in override:
        return f"{override} cannot be read as key=value; check its brackets, commas and quotes"
    pairs = [(group, name) for group in GROUPS for name in options(group).split(", ")]
    near = difflib.get_close_matches(override, [name for _, name in pairs], n=1, cutoff=0.75)
    meant = " or ".join(f"{group}={name}" for group, name in pairs if name in near)
    help_text = f"did you mean {meant}?" if meant else "an example: activation=prelu"
    return f"{override} is not key=value; {help_text}"


def near_keys(key: str) -> list[str]:
    """Return the known keys that end like `key`, exactly or nearly: those of its group, or else at
    most three."""
    by_last: dict[str, list[str]] = {}
    for name in keys_of_conf():
        by_last.setdefault(name.rpartition(".")[2], []).append(name)
    last = key.rpartition(".")[2]
    nearest = difflib.get_close_matches(last, by_last, n=1, cutoff=0.75)
    names = by_last[nearest[0]] if nearest else []
    group = key.partition(".")[0]
    return [name for name in names if name.startswith(f"{group}.")] or names[:3]
