"""Make docs/reference/configuration.md: every key and every option, as the typed configuration and
conf/ declare them.

python scripts/reference.py           # write it
python scripts/reference.py --check   # exit with 1 where it is stale
"""

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path

import yaml
from hydra.utils import get_method
from pydantic.fields import FieldInfo

from rectifiers.results.generated import write_or_check
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.files import CONF
from rectifiers.runtime.programs import one_sentence
from rectifiers.runtime.schema import Section, expected, keys, subsection

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"
HEAD = """\
# Configuration

Every key of a run, as `python train.py key=value` takes it, and every option of every group, as `group=option` takes
it. `python train.py --help` prints the keys with the values that a command line makes, and `--cfg job` prints what a
command would run. Made by `python scripts/reference.py` from `src/rectifiers/runs/config.py` and `conf/`; do not edit.
"""  # noqa: E501


def render() -> str:
    """Return the page."""
    groups = {name: field for name, field in keys(RunConfig).items() if subsection(field)}
    plain = {name: field for name, field in keys(RunConfig).items() if name not in groups}
    parts = [HEAD, *_keys(plain)]
    for name, field in groups.items():
        section = subsection(field) or Section
        parts += [
            f"\n## {name}\n\n{field.description or ' '.join((section.__doc__ or '').split())}\n",
            *_keys(keys(section), f"{name}."),
        ]
        parts += _options(name, section)
    for name in sorted(
        path.name
        for path in CONF.iterdir()
        if path.is_dir() and path.name not in {*groups, "hydra"}
    ):
        parts += [f"\n## {name}", *_options(name, Section)]
    return "\n".join(parts) + "\n"


def _keys(fields: Mapping[str, FieldInfo], prefix: str = "") -> Iterator[str]:
    yield "| key | meaning | takes |\n|---|---|---|"
    for name, field in fields.items():
        meaning, takes = (_in_a_cell(text) for text in (field.description or "", expected(field)))
        yield f"| `{prefix}{name}` | {meaning} | {takes} |"


def _options(group: str, section: type[Section]) -> Iterator[str]:
    """The files of the group: what each says of itself, and the settings that its function has of
    its own."""
    if not (CONF / group).is_dir():
        return
    yield f"\n| `{group}=` | what it is | its own settings |\n|---|---|---|"
    for path in sorted((CONF / group).rglob("*.yaml")):
        content = yaml.safe_load(path.read_text()) or {}
        given = content.get(group, content)
        own = []
        if "_target_" in given:
            own = [
                f"`{group}.{key}={json.dumps(value)}`"
                for key, value in given.items()
                if key not in keys(section)
            ]
        name = path.relative_to(CONF / group).with_suffix("").as_posix()
        yield f"| `{name}` | {_in_a_cell(_says(path, given))} | {', '.join(own)} |"


def _says(path: Path, given: Mapping[str, object]) -> str:
    """Return the first lines of the file's own comment, else of its function's docstring."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
    comment = [
        line.removeprefix("#").strip()
        for line in takewhile(lambda line: line.startswith("#"), lines)
    ]
    if comment:
        return " ".join(
            takewhile(
                lambda line: not line.startswith(("DEVIATION:", "python ", "sbatch ")), comment
            )
        )
    target = given.get("_target_")
    return (
        (inspect.getdoc(get_method(str(target))) or "").partition("\n\n")[0].replace("\n", " ")
        if target
        else ""
    )


def _in_a_cell(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


if __name__ == "__main__":
    with one_sentence():
        write_or_check({PAGE: render()}, sys.argv[1:] == ["--check"], "python scripts/reference.py")
