"""docs/reference/configuration.md, and what every key and every option says of itself."""

from conftest import CONF, load_script
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.schema import Section, keys, subsection

reference = load_script("reference")


def test_the_reference_is_what_the_typed_configuration_says() -> None:
    assert reference.PAGE.read_text() == reference.render(), "run python scripts/reference.py"


def test_every_option_of_every_group_says_what_it_is() -> None:
    rows = [line.split(" | ") for line in reference.render().splitlines() if line.startswith("| `")]
    said = {name.strip("| `"): text for name, text, _ in rows}
    for folder in (path for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"):
        for option in folder.rglob("*.yaml"):
            name = option.relative_to(folder).with_suffix("").as_posix()
            assert said[name], f"{folder.name}={name}: write a comment at its top, or a docstring"


def test_every_key_says_what_it_means() -> None:
    def silent(section: type[Section], prefix: str = "") -> list[str]:
        found = []
        for name, field in keys(section).items():
            inside = subsection(field)
            found += (
                silent(inside, f"{name}.")
                if inside
                else []
                if field.description
                else [prefix + name]
            )
        return found

    assert silent(RunConfig) == []
