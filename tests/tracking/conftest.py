from collections.abc import Iterator

import pytest

from tracking.stub import Stub, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A server, and a user who is logged in to it."""
    with serving() as stub:
        monkeypatch.setenv("WANDB_BASE_URL", stub.url)
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        yield stub
        stub.fault = None
