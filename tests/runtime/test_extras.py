"""What is not installed is named with its extra."""

import re
import tomllib

import pytest
from hydra.errors import ConfigCompositionException

from conftest import ROOT
from rectifiers.runtime.extras import EXTRAS, PLUGINS, missing_extra
from rectifiers.runtime.programs import cli_errors

OF_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def test_missing_package_is_one_line_with_its_extra(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), cli_errors():
        raise ModuleNotFoundError("No module named 'zlib_ng.zlib_ng'", name="zlib_ng.zlib_ng")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: zlib_ng is not installed")
    assert "EXTRAS=imagenet" in line


@pytest.mark.parametrize(("option", "extra"), PLUGINS.items())
def test_missing_plugin_is_named_with_its_extra(option: str, extra: str) -> None:
    error = ConfigCompositionException(f"In 'hydra/config': Could not find '{option}'")
    assert f"rectifiers[{extra}]" in (missing_extra(error) or "")
    assert missing_extra(ConfigCompositionException("Could not find 'activation/relo'")) is None


def test_every_extra_exists_and_brings_its_package() -> None:
    for package, extra in EXTRAS.items():
        names = [re.split(r"\W*[<>=!\[]", line)[0] for line in OF_PROJECT[extra]]
        assert package.partition("_data")[0].partition("_objects")[0].replace("_", "-") in names
    assert set(PLUGINS.values()) <= OF_PROJECT.keys()
