"""docs/configuration.md, and what every key says of itself."""

from conftest import ROOT
from rectifiers.cli.reference import render
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.schema import Section, keys, subsection


def test_the_reference_is_what_the_typed_configuration_says() -> None:
    stale = "make it anew: python -m rectifiers.cli.reference > docs/configuration.md"
    assert (ROOT / "docs" / "configuration.md").read_text() == render(), stale


def test_every_key_says_what_it_means() -> None:
    def silent(section: type[Section], prefix: str = "") -> list[str]:
        found = []
        for name, field in keys(section).items():
            inside = subsection(field)
            found += silent(inside, f"{name}.") if inside else [] if field.description else [prefix + name]
        return found

    assert silent(RunConfig) == []
