"""One line of help for a command line that Hydra refuses: which key or option was meant."""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence

from hydra.errors import OverrideParseException

from rectifiers.runs.identity import RENAMED
from rectifiers.runs.sections import MORE_TRAINER_ARGUMENTS, OWN_TRAINER_ARGUMENTS, options
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.schema import JsonObject

GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")
MANY = 30  # options, which one line does not name
OPTIONAL = ("callbacks", "claim", "debug", "experiment", "hparams_search")
# What others call an option.
SYNONYMS = {
    "activation": {
        "hswish": "hardswish",
        "linear": "identity",
        "lrelu": "leaky_relu",
        "none": "identity",
        "swish": "silu",
        "torch": "torch.nn.Mish",
    },
    "init": {
        "default": "torch_default",
        "glorot": "xavier",
        "kaiming": "he",
        "kaiming_normal": "he",
        "kaiming_uniform": "he_uniform",
        "msra": "he",
        "normal": "gaussian",
    },
    "data": {"mnist": "digits"},
    "optim": {"adam": "adamw optim._target_=torch.optim.Adam", "sgd": "paper"},
    "scheduler": {"constant": "multistep", "none": "multistep", "step": "multistep"},
    "trainer": {"cuda": "gpu", "multi_node": "slurm", "node": "ddp", "one_gpu": "gpu"},
}
MILESTONES = "scheduler=multistep scheduler.milestones"
# Keys of earlier versions, with what they are now; `near_keys` finds those whose last part stayed.
OLD_KEYS = RENAMED | {
    "optim.drop_epochs": MILESTONES,
    "optim.drop_epochs_from": MILESTONES,
    "scheduler.milestones": MILESTONES,
    "compute": "trainer",
    "compute.autotune": "trainer.benchmark",
    "compute.nodes": "trainer.num_nodes",
    "compute.workers": "data.num_workers",
    "paths.data_dir": "data.root",
    "paths.output_dir": "runs_dir",
    "sweep": "hparams_search",
    "task_name": "tags",
}
# What others have and this program does another way.
OTHER_WAYS = {
    "extras": "--cfg job prints the configuration, and tags=[...] takes tags",
    "test": "evaluation=[center] chooses the tests, and scripts/evaluate.py tests a finished run",
    "train": "scripts/evaluate.py tests a finished run without training",
}
OF_LIGHTNING = ("callbacks", "logger")  # groups whose options are keys by their own names


def check_arguments(arguments: Sequence[str], config: Callable[[], JsonObject]) -> None:
    """Refuse a key that is written as a flag, as in --epochs=3, and a group without an option.

    config: returns the composed configuration, for its keys."""
    for place, argument in enumerate(arguments):
        key, equals, value = argument.partition("=")
        reason = ""
        if argument in ("--cfg", "-c") and {"--multirun", "-m"} & set(arguments):
            reason = f"{argument} shows one configuration; leave out --multirun"
        if key.startswith("--") and equals and (near := near_keys(key[2:], known_keys(config()))):
            meant = " or ".join(f"{name}={value}" for name in near)
            reason = f"{argument} is not a flag; did you mean {meant}?"
        elif key.startswith("+") and key.lstrip("+") in GROUPS and value:
            reason = f"{argument} adds nothing to the groups that are there; leave out the plus"
        elif argument in ("--multirun", "-m") and 0 < place < len(arguments) - 1:
            reason = f"{argument} stands between overrides; put it first or last"
        elif key in GROUPS and key not in OPTIONAL and equals and value in ("", "null"):
            reason = f"invalid {key}: {value or 'empty'} (choose from {options(key)})"
        elif key == "hydra.sweeper.n_trials" and re.fullmatch(r"0+|-\d+", value):
            reason = f"{argument} searches nothing; give a whole number at least 1"
        if reason:
            raise InputError(reason, status=2, on_all_ranks=True)


def explain(error: Exception, config: JsonObject) -> str:
    """Return what Hydra refuses in one line. config: a composed configuration, for its keys."""
    text = str(error)
    if isinstance(error, OverrideParseException):
        return _of_grammar(str(error.override))
    if match := re.search(r"Could not (?:find|load) '([\w/]+?)/([^']+)'", text):
        group, option = match.groups()
        if group in GROUPS:
            return _of_option(group, option)
    if match := re.search(r"Could not override '([^']+)'", text):
        return _of_key(match[1], known_keys(config))
    if text.startswith("Ambiguous value for argument"):
        typed = text.partition("'")[2].partition("'")[0]
        return f"{typed} gives several values; add --multirun to run each, or give one"
    lines = [line for line in text.splitlines() if not line.startswith("To append")]
    return " ".join(" ".join(lines).split())


def known_keys(config: JsonObject, prefix: str = "") -> list[str]:
    """Return the dotted keys of a configuration, and its groups."""
    keys: list[str] = []
    for key, value in config.items():
        keys.append(f"{prefix}{key}")
        if isinstance(value, dict):
            keys += known_keys(value, f"{prefix}{key}.")
    return keys if prefix else sorted({*keys, *GROUPS})


def _of_option(group: str, option: str) -> str:
    known = options(group).split(", ")
    meant = SYNONYMS.get(group, {}).get(option)
    near = [meant] if meant else difflib.get_close_matches(option, known, n=1, cutoff=0.5)
    question = f"did you mean {group}={near[0]}? " if near else ""
    listed = f"the options are: {', '.join(known)}" if len(known) <= MANY else "see --help"
    return f"{group}={option} is not known; {question}{listed}"


def _of_key(key: str, known: Sequence[str]) -> str:
    place, _, name = key.rpartition(".")
    group, _, rest = key.partition(".")
    if place in OF_LIGHTNING:
        return f"{key} is not known; a key of {place} follows a name: {place}.<name>.{name}"
    option = rest.partition(".")[0]
    if group in OF_LIGHTNING and option in options(group).split(", ") and key not in known:
        beside = [other for other in known if other.startswith(f"{group}.{option}.")]
        if not beside:
            return f"{key} belongs to {group}={option}, which is not chosen; add {group}={option}"
    if group in OTHER_WAYS:
        return f"{key} is not known; {OTHER_WAYS[group]}"
    if place == "trainer" and name in OWN_TRAINER_ARGUMENTS:
        return f"{key} is set by train.py itself; leave it out"
    if place == "trainer" and name in MORE_TRAINER_ARGUMENTS:
        return f"{key} is an argument of Lightning's Trainer and needs a plus: +{key}"
    near = [OLD_KEYS[key]] if key in OLD_KEYS else near_keys(key, known)
    beside = [other for other in known if other.rpartition(".")[0] == place]
    is_elsewhere = key not in OLD_KEYS and not set(near) & set(beside)
    question = _of_other_option(place, name) if is_elsewhere else ""
    if near and not question:
        return f"{key} is not known; did you mean {' or '.join(near)}?"
    if place and beside:
        return f"{key} is not known; {question}the keys of {place} are: {', '.join(beside)}"
    return f"{key} is not known; --help prints all keys"


def _of_other_option(group: str, name: str) -> str:
    """Return a question for a key that other options of a group have."""
    having: dict[str, list[str]] = {}
    for option in options(group).split(", ") if group in GROUPS else ():
        path = CONF / group / f"{option}.yaml"
        for key in load_yaml(path.read_text()) if path.is_file() else ():
            having.setdefault(key, []).append(f"{group}={option}")
    near = difflib.get_close_matches(name, having, n=1, cutoff=0.75)
    return f"did you mean {group}.{near[0]} of {' or '.join(having[near[0]])}? " if near else ""


def _of_grammar(override: str) -> str:
    if "=" in override:
        return f"{override} cannot be read as key=value; check its brackets, commas and quotes"
    pairs = [(group, name) for group in GROUPS for name in options(group).split(", ")]
    near = difflib.get_close_matches(override, [name for _, name in pairs], n=1, cutoff=0.75)
    meant = " or ".join(f"{group}={name}" for group, name in pairs if name in near)
    help_text = f"did you mean {meant}?" if meant else "an example: activation=prelu"
    return f"{override} is not key=value; {help_text}"


def near_keys(key: str, known: Iterable[str]) -> list[str]:
    """Return the known keys that end like `key`, exactly or nearly; at most three."""
    by_last: dict[str, list[str]] = {}
    for name in known:
        by_last.setdefault(name.rpartition(".")[2], []).append(name)
    last = key.rpartition(".")[2]
    if last in by_last:
        return by_last[last][:3]
    nearest = difflib.get_close_matches(last, by_last, n=1, cutoff=0.75)
    if not nearest and last in ("epoch", "epochs"):
        nearest = ["max_epochs"]
    return by_last[nearest[0]][:3] if nearest else []
