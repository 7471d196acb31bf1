"""What an error says is one line, whatever it quotes."""

from rectifiers.runtime.errors import InputError


def test_message_of_several_lines_becomes_one() -> None:
    error = InputError("data.root=a  b: torch said\n\n    so\r\nand so\n")
    assert str(error) == "data.root=a  b: torch said so and so"
