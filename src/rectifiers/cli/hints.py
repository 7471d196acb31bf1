"""One line of help for a command line that Hydra refuses: which key or option was meant, by the
words of other projects (`runtime.words`), or else by spelling."""

import difflib
import re
from collections.abc import Mapping, Sequence

from hydra.errors import OverrideParseException
from yaml import YAMLError

from rectifiers.runs.options import GROUPS, keys_of_conf, options
from rectifiers.runs.sections import DOTTED_NAME
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.words import CONTINUE, meaning, one_after_other

MANY = 30  # options, which one line does not name
OPTIONAL = ("callbacks", "claim", "debug", "experiment", "hparams_search", "local", "logger")
EMPTY = ("", "null", "{}")  # what chooses no option of a group
PLACE = "a run's files are in <runs_dir>/<id>; give runs_dir=<folder>"
# Arguments that Hydra takes for something else, or refuses in words about itself.
REFUSED = (
    (rf"\++({'|'.join(GROUPS)})=.+", "adds nothing to the groups; leave out the plus"),
    (r"[+~]*=.*", "has no key; give <key>=<value>"),
    (r"checkpoint=(?!\{).*", f"is not usable; {CONTINUE}"),  # the key is a section, and no file
    (r"\+*hydra=(?!\{).*", "is no group; leave it out"),
    (r"[+~]*hydra\.(run|run\.dir|output_subdir|job\.chdir)(=.*)?", f"is not usable; {PLACE}"),
    (r"hydra\.sweeper\.n_trials=(0+|-\d+)", "searches nothing; give a whole number at least 1"),
)
# What Hydra reads as something else than a name; it ends in a traceback where it needs one.
NO_NAME = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?|true|false|null|\{.*")


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse what Hydra would misread, such as a key as a flag, --epochs=3, or a group's null."""
    is_sweep = not {"--multirun", "-m"}.isdisjoint(arguments)
    for place, argument in enumerate(arguments):
        reason = _of_argument(argument)
        if argument in ("--multirun", "-m") and 0 < place < len(arguments) - 1:
            reason = f"{argument} stands between overrides; put it first or last"
        elif argument in ("--cfg", "-c") and is_sweep:
            reason = f"{argument} shows one configuration; leave out --multirun"
        if reason:
            raise InputError(reason, status=2, on_all_ranks=True)


def explain(error: Exception) -> str:
    """Return what Hydra refuses in one line."""
    text = str(error)
    if isinstance(error, OverrideParseException):
        return _of_grammar(str(error.override))
    match = re.search(r"Could not (?:find|load) '([\w/]+?)/([^']+)'", text)
    if match and match[1] in GROUPS:
        return _of_option(match[1], match[2])
    if match := re.search(r"Could not override '([^']+)'", text):
        return _of_key(match[1])
    if match := re.match(r"Ambiguous value for argument '([^']+)'", text):
        return f"{match[1]} gives several values; add --multirun to run each, or give one"
    words = " ".join(text.split())
    return f"a file is not YAML; correct it: {words}" if isinstance(error, YAMLError) else words


def _of_argument(argument: str) -> str | None:
    for pattern, refusal in REFUSED:
        if re.fullmatch(pattern, argument):
            return f"{argument} {refusal}"
    key, equals, value = argument.partition("=")
    if key.startswith("--"):
        name = key.removeprefix("--").replace("-", "_")
        # without a value, it may be a flag of Hydra's
        remedy = meaning(name) or (_similar_key(name) if value else None)
        return f"{argument} is not a flag; {remedy}" if remedy else None
    if key in (*GROUPS, "local") and equals and (wrong := _no_name(key, value)):
        usable = [*options(key), *(["null"] if key in OPTIONAL else [])]
        return f"invalid {key}: {wrong} (choose from {', '.join(usable)})"
    return None


def _no_name(group: str, value: str) -> str | None:
    """Return the part of a group's value that is no option's name, or None. Null is no option, and
    can stand where a group may be left out."""
    may_be_empty = group in OPTIONAL
    if value in EMPTY:
        return None if may_be_empty else value or "empty"
    if value.startswith("{"):  # keys of the group's option
        return value if may_be_empty else None
    parts = [part.strip() for part in re.split(r"[\[\],]", value)]
    usable = ("null",) if may_be_empty else ()
    if group == "local":  # optional, so Hydra ignores a missing file
        known = ("", *options(group), *usable)
        return next((part for part in parts if part not in known), None)
    return next((p for p in parts if NO_NAME.fullmatch(p) and p not in usable), None)


def _of_key(key: str) -> str:
    if key in GROUPS:
        return f"{key} has no such key; give {key}.<key>=<value> for each"
    names = [name for name in keys_of_conf() if f"{name}.".startswith(f"{key}.")]
    if having := dict.fromkeys(option for name in names for option in keys_of_conf()[name]):
        return f"{key} belongs to {' or '.join(having)}, which is not chosen; add that, too"
    return f"{key} is not known; {meaning(key) or _similar_key(key) or '--help prints all keys'}"


def _similar_key(key: str) -> str | None:
    """Return the known keys that end like `key`, exactly or nearly: those of its group, or else at
    most three."""
    by_last: dict[str, list[str]] = {}
    for name in keys_of_conf():
        by_last.setdefault(name.rpartition(".")[2], []).append(name)
    names = _similar(key.rpartition(".")[2], by_last)
    group = key.partition(".")[0]
    names = [name for name in names if name.startswith(f"{group}.")] or names[:3]
    return _question([_with_options(name) for name in names])


def _with_options(key: str) -> str:
    """Return a key, with the options that have it where most of its group do not."""
    having = keys_of_conf()[key]
    is_rare = having and 2 * len(having) < len(options(key.partition(".")[0]))
    return f"{key} of {' or '.join(having)}" if is_rare else key


def _of_option(group: str, option: str) -> str:
    known = options(group)
    near = _similar(option, {name: [f"{group}={name}"] for name in known}, cutoff=0.5)
    dotted = option.removeprefix("./").replace("/", ".")
    if "/" in option and "." in option and DOTTED_NAME.fullmatch(dotted):  # of a file in a folder
        near = [f"{group}={dotted}"]
    listed = f"the options are: {', '.join(known)}" if len(known) <= MANY else "see --help"
    remedy = one_after_other(meaning(f"{group}={option}") or _question(near), listed)
    return f"{group}={option} is not known; {remedy}"


def _of_grammar(override: str) -> str:
    if "=" in override:
        return f"{override} cannot be read as key=value; check its brackets, commas and quotes"
    by_option: dict[str, list[str]] = {}
    for group in GROUPS:
        for option in options(group):
            by_option.setdefault(option, []).append(f"{group}={option}")
    remedy = _question(_similar(override, by_option)) or "an example: activation=prelu"
    return f"{override} is not key=value; {remedy}"


def _similar(word: str, known: Mapping[str, list[str]], cutoff: float = 0.75) -> list[str]:
    """Return what stands beside the known word that is spelled most like `word`."""
    nearest = difflib.get_close_matches(word, known, n=1, cutoff=cutoff)
    return known[nearest[0]] if nearest else []


def _question(candidates: Sequence[str]) -> str | None:
    return f"did you mean {' or '.join(candidates)}?" if candidates else None
