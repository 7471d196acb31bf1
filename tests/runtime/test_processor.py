"""The processor is named as the system names it, and cores are free that nobody uses."""

import os
import platform
from pathlib import Path

import pytest

from rectifiers.runtime import processor

CPUINFO = (
    "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC "
    "9575F: 64 cores\n"
)


@pytest.fixture(autouse=True)
def _asked_again():
    functions = (processor.name, processor.vendor)
    for function in functions:
        function.cache_clear()
    yield
    for function in functions:
        function.cache_clear()


def test_linux_says_who_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: CPUINFO)
    assert processor.name() == "AMD EPYC 9575F: 64 cores"
    assert processor.vendor() == "AuthenticAMD"


def test_other_systems_say_it_in_words_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr(
        platform, "processor", lambda: "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel"
    )
    assert processor.name() == "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel"
    assert processor.vendor() == "GenuineIntel"
    monkeypatch.setattr(platform, "processor", lambda: "")
    processor.name.cache_clear()
    assert processor.name() == platform.machine()


@pytest.mark.parametrize(
    ("own", "load", "free"), [(8, 0.2, 8), (8, 2.6, 5), (2, 2.6, 2), (2, 7.4, 1), (8, 30.0, 1)]
)
def test_cores_are_free_that_this_process_may_use_and_nobody_does(
    own: int, load: float, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(own)), raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert processor.free_cores() == free
