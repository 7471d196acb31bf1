"""How a program that fails must end, whatever else it has printed."""


def sentence(stderr: str) -> str:
    """Return the one error that a program printed, which must be the last line, without a
    traceback."""
    assert "Traceback" not in stderr, stderr
    assert stderr.count("error: ") == 1, stderr
    last = stderr.splitlines()[-1]
    assert last.startswith("error: "), stderr
    return last.removeprefix("error: ")
