"""What is wrong with a command line, in one sentence that says what could have been meant.

Hydra's own refusals name neither keys nor near misses, and advise to add keys, which only a
function named by its path reads."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, QuotedString
from hydra.errors import HydraException, OverrideParseException

from rectifiers.runs.config import RunConfig, Target, options
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF
from rectifiers.runtime.schema import Section, keys, subsection, unknown_key

GROUP_FOLDERS = {path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"}
# Hydra's flags, and those of them that the next argument belongs to.
FLAGS = (
    "--help",
    "-h",
    "--hydra-help",
    "--version",
    "--run",
    "-r",
    "--multirun",
    "-m",
    "--resolve",
    "--shell-completion",
    "-sc",
    "--cfg",
    "-c",
    "--package",
    "-p",
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
    "--config-dir",
    "-cd",
    "--info",
    "-i",
    "--experimental-rerun",
)
WITH_VALUE = FLAGS[FLAGS.index("--cfg") :]
FEW = 5  # options, which are named in one sentence
MANY = 30  # options, which are not all named beside the one that was meant
OWN_CONFIG = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn")


def check_arguments(arguments: Sequence[str]) -> None:
    """Check what can be judged without composing: flags, the form key=value, and the options of
    groups.

    Raises:
        InputError: for the first argument that cannot be used, on all ranks.
    """
    try:
        _check_arguments(arguments)
    except InputError as error:
        error.on_all_ranks = True  # they were all given the same
        raise


def flags_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments in the order that Hydra's parser understands: it takes no flag between
    overrides."""
    is_flag = [
        argument.startswith("-") or before in WITH_VALUE
        for before, argument in zip(("", *arguments), arguments, strict=False)
    ]
    return [
        each
        for wanted in (True, False)
        for each, is_one in zip(arguments, is_flag, strict=True)
        if is_one == wanted
    ]


def _check_arguments(arguments: Sequence[str]) -> None:
    chosen: dict[str, str] = {}
    has_own_options = any(argument.partition("=")[0] in OWN_CONFIG for argument in arguments)
    for before, argument in zip(("", *arguments), arguments, strict=False):
        if before in WITH_VALUE:
            continue
        if argument.startswith("-"):
            _check_flag(argument)
            continue
        group, equals, text = argument.partition("=")
        if group[:1] in ("+", "~"):
            if group.lstrip("+~").startswith("hydra") or _adds_a_setting(group):
                continue
            raise InputError(
                f"{argument} adds or removes a key, which nothing here reads; write key=value"
            )
        if not group or not equals:
            raise InputError(f"{argument} is not key=value; {_with_option(argument)}")
        if not all(group.split(".")):
            raise InputError(
                f"{argument} has a dot without a key beside it; write key=value, such as "
                "optim.lr=0.01"
            )
        if group not in GROUP_FOLDERS:
            continue
        if group in chosen:
            raise InputError(
                f"{chosen[group]} and {argument} choose {group} twice; give one of them"
            )
        chosen[group] = argument
        _check_options(group, text, argument, any_name=has_own_options)


def _adds_a_setting(key: str) -> bool:
    """Say whether a key with a plus adds a setting to a function, whose signature judges it
    later."""
    group, _, setting = key.removeprefix("+").partition(".")
    return key.startswith("+") and setting.isidentifier() and group in _functions()


def _functions() -> set[str]:
    """Return the groups that are a function and its settings."""
    sections = {name: subsection(field) for name, field in keys(RunConfig).items()}
    return {name for name, section in sections.items() if section and issubclass(section, Target)}


def _check_flag(argument: str) -> None:
    flag, equals, value = argument.partition("=")
    if flag in FLAGS or (flag.startswith("--") and any(known.startswith(flag) for known in FLAGS)):
        return
    name = flag.lstrip("-")
    meant = [name] if name in GROUP_FOLDERS else _near_keys(name)
    words = " or ".join(f"{key}={value if equals else '<value>'}" for key in meant)
    raise InputError(
        f"{argument} is not a flag; "
        f"{f'did you mean {words}?' if words else 'settings are key=value'}"
    )


def _check_options(group: str, text: str, argument: str, *, any_name: bool) -> None:
    """Raise an InputError for what is no option of `group`; any_name: of a configuration that is
    not ours."""
    try:
        given = OverridesParser.create().parse_override(argument).value()
    except HydraException:  # composing says what is wrong with the grammar
        return
    choices = given.list if isinstance(given, ChoiceSweep) else [given]
    known = options(group).split(", ")
    for choice in choices:
        named = [
            name.text if isinstance(name, QuotedString) else name
            for name in (choice if isinstance(choice, list) else [choice])
        ]
        _check_names(group, text, named, known, any_name=any_name)


def _check_names(
    group: str, text: str, named: Sequence[Any], known: Sequence[str], *, any_name: bool
) -> None:
    """Raise an InputError where a choice of options has one that is none of `known`, or one
    twice."""
    for name in named:
        if not isinstance(name, str) or not name:
            raise InputError(
                f"{group}={text} is not usable; leave it out, or give {group}=<option> of: "
                f"{options(group)}"
            )
        if name not in known and not any_name and "$" not in name:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            meant = f"did you mean {group}={near[0]}? " if near else ""
            listed = f"{'The' if near else 'the'} options are: {options(group)}"
            if near and len(known) > MANY:
                listed = "--help lists the options"
            raise InputError(f"{group}={name} is not known; {meant}{listed}")
        if named.count(name) > 1:
            raise InputError(f"{group}={text} has {name} twice; give it once")


def _with_option(word: str) -> str:
    """Say which group has `word`, or a name like it, as its option."""
    pairs = [
        (group, option) for group in sorted(GROUP_FOLDERS) for option in options(group).split(", ")
    ]
    near = difflib.get_close_matches(word, [option for _, option in pairs], n=1, cutoff=0.75)
    meant = [f"{group}={option}" for group, option in pairs if near and option == near[0]]
    return (
        f"did you mean {' or '.join(meant)}?"
        if meant
        else "settings are key=value, such as activation=prelu"
    )


def unknown_keys(overrides: Iterable[str], config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every override whose key `config`, composed without it, does not
    have."""
    targets = {
        key: value
        for key, _, value in (each.partition("=") for each in overrides)
        if key.endswith("._target_")
    }
    chosen = config.get("hydra", {}).get("runtime", {}).get("choices", {})
    for key, _, value in (
        each.partition("=") for each in overrides if "=" in each and each[0] not in "-+~"
    ):
        node: Any = config
        path = ""
        for part in key.split("."):
            if part == "hydra" or "/" in part:
                break
            if not isinstance(node, Mapping):
                if isinstance(node, str | int | float):
                    yield f"{key} is not known; {path[:-1]} is a value and has no keys"
                break
            if (
                not path and part in GROUP_FOLDERS and part not in node
            ):  # an optional group that is not chosen
                if "." in key:
                    yield (
                        f"{key} needs an option of {part}; give {part}=<option> of: {options(part)}"
                    )
                break
            if part not in node:
                group = path[:-1]
                elsewhere = [
                    found
                    for found in known_keys()
                    if found.rpartition(".")[2] == key.rpartition(".")[2]
                ]
                if (target := targets.get(f"{path}_target_")) and _adds_a_setting(f"+{key}"):
                    yield f"{key} is not known; a setting of {target} takes a plus: +{key}={value}"
                elif having := _options_with(group, part):
                    refused = f"a key of {group}={chosen[group]}" if group in chosen else "known"
                    listed = (
                        " and ".join(having)
                        if len(having) <= FEW
                        else f"{len(having)} other options"
                    )
                    keys_here = ", ".join(map(str, node))
                    yield (
                        f"{path}{part} is not {refused}; {listed} "
                        f"{'has' if len(having) == 1 else 'have'} it. "
                        f"The keys of {group} are: {keys_here}"
                    )
                elif elsewhere:
                    yield f"{key} is not known; did you mean {' or '.join(elsewhere)}?"
                else:
                    yield unknown_key(
                        f"{path}{part}", {*map(str, node), *([] if path else GROUP_FOLDERS)}
                    )
                break
            path += f"{part}."
            node = node[part]


def _options_with(group: str, key: str) -> list[str]:
    """Return the options of `group` that have `group.key`, of their own or from an option that they
    build on."""

    def has(name: str) -> bool:
        path = CONF / group / f"{name}.yaml"
        try:
            content = yaml.safe_load(path.read_text())
        except (OSError, ValueError, yaml.YAMLError):
            return False  # composing refuses it, once it is chosen
        if not isinstance(content, dict):
            return False
        own = content.get(group, content)
        return (isinstance(own, dict) and key in own) or any(
            has(base)
            for base in content.get("defaults") or ()
            if isinstance(base, str) and base not in ("_self_", name)
        )

    if group not in GROUP_FOLDERS or key in ("_target_", "defaults"):
        return []
    return [
        f"{group}={path.stem}" for path in sorted((CONF / group).glob("*.yaml")) if has(path.stem)
    ]


def options_chosen(overrides: Iterable[str]) -> list[str]:
    """Return the overrides that choose options, of a sweep the first one."""
    found = []
    for each in overrides:
        if (key := each.partition("=")[0]) in GROUP_FOLDERS:
            try:
                given = OverridesParser.create().parse_override(each).value()
            except HydraException:
                continue
            found.append(
                f"{key}={_spelled(given.list[0] if isinstance(given, ChoiceSweep) else given)}"
            )
    return found


def _spelled(given: Any) -> str:
    """Return one or several options as a command line has them."""
    if isinstance(given, list | tuple):
        return f"[{','.join(map(_spelled, given))}]"
    return given.text if isinstance(given, QuotedString) else str(given)


def known_keys(section: type[Section] = RunConfig, prefix: str = "") -> list[str]:
    """Return every declared key of a configuration, dotted."""
    found = []
    for name, field in keys(section).items():
        inside = subsection(field)
        found += known_keys(inside, f"{prefix}{name}.") if inside else [f"{prefix}{name}"]
    return found


def _near_keys(name: str) -> list[str]:
    """Return the keys that are `name`, or end in it or in a name like it."""
    known = known_keys()
    lasts = {key.rpartition(".")[2] for key in known}
    near = difflib.get_close_matches(name.rpartition(".")[2], lasts, n=1, cutoff=0.75)
    found = [key for key in known if key == name or (near and key.rpartition(".")[2] == near[0])]
    return [name] if name in found else found


def without_advice(error: Exception) -> str:
    """Return what Hydra says in one line, without its advice to add a key."""
    lines = [
        line for line in str(error).splitlines() if not line.startswith("To append to your config")
    ]
    reason, _, argument = lines[0].partition(": ") if lines else ("", "", "")
    if (
        reason == "LexerNoViableAltException"
    ):  # a character that Hydra's grammar does not know outside of quotes
        key, _, value = argument.partition("=")
        return f"""{argument} cannot be read; quote the value: '{key}="{value.strip("'" + '"')}"'"""
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override} cannot be read as key=value; check its brackets, commas and quotes"
        )
    if str(error).startswith("Ambiguous value for argument"):
        typed = str(error).partition("'")[2].partition("'")[0]
        return f"{typed} gives several values; add --multirun to run each, or give one"
    return " ".join(" ".join(lines).split())
