from collections.abc import Iterator

import pytest

from tracking.stub import Stub, serving


@pytest.fixture
def server(monkeypatch) -> Iterator[Stub]:
    """Return a server to which the user is logged in."""
    with serving() as stub:
        monkeypatch.setenv("WANDB_BASE_URL", stub.url)
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        yield stub
        stub.failure = None
