"""What a terminal shows of names from elsewhere."""

import warnings

import pytest

from rectifiers.runtime.console import printable_warnings


@pytest.mark.parametrize("name", ["a\x1b[31m.jpg", "b\x9b2J.png", "c\x1b]0;title\x07", "d\rerror"])
def test_warnings_send_a_terminal_no_control_characters(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = warnings.showwarning
    with printable_warnings(), warnings.catch_warnings(action="always"):
        warnings.warn(f"{name} cannot be read", stacklevel=1)
    shown = capsys.readouterr().err
    assert "cannot be read" in shown
    assert all(char.isprintable() for char in shown.replace("\n", ""))
    assert warnings.showwarning is before
