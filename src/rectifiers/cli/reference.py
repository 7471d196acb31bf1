"""docs/configuration.md: every key with its meaning, as the typed configuration declares it."""

import json
from collections.abc import Iterator, Mapping

import yaml
from pydantic.fields import FieldInfo

from rectifiers.runs.config import RunConfig, Target
from rectifiers.runtime.files import CONF
from rectifiers.runtime.schema import Section, expected, keys, subsection

HEAD = """\
# Configuration

Every key of a run, as `python train.py key=value` takes it. `python train.py --help` prints the same with the values
that a command line makes. Made from `src/rectifiers/runs/config.py` by
`python -m rectifiers.cli.reference > docs/configuration.md`.
"""


def render() -> str:
    groups = {name: field for name, field in keys(RunConfig).items() if subsection(field)}
    plain = {name: field for name, field in keys(RunConfig).items() if name not in groups}
    parts = [HEAD, *_table(plain)]
    for name, field in groups.items():
        section = subsection(field) or Section
        parts += [f"\n## {name}\n\n{field.description or section.__doc__}\n", *_table(keys(section), f"{name}.")]
        if issubclass(section, Target):
            parts += _options(name, section)
    return "\n".join(parts) + "\n"


def _table(fields: Mapping[str, FieldInfo], prefix: str = "") -> Iterator[str]:
    yield "| key | meaning | takes |\n|---|---|---|"
    for name, field in fields.items():
        meaning, takes = (text.replace("<", "&lt;") for text in (field.description or "", expected(field)))
        yield f"| `{prefix}{name}` | {meaning} | {takes} |"


def _options(group: str, section: type[Section]) -> Iterator[str]:
    """The functions that can be chosen, with the settings of their own."""
    yield f"\n| `{group}=` | function | its own settings |\n|---|---|---|"
    for path in sorted((CONF / group).glob("*.yaml")):
        content = yaml.safe_load(path.read_text())
        given = content.get(group, content)
        own = [f"`{group}.{key}={json.dumps(value)}`" for key, value in given.items() if key not in keys(section)]
        target = given.get("_target_")
        function = f"`{target.rpartition('.')[2]}`" if target else f"as {', '.join(content['defaults'])}"
        yield f"| {path.stem} | {function} | {', '.join(own)} |"


if __name__ == "__main__":
    print(render(), end="")
