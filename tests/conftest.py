# SPDX-License-Identifier: BSD-2-Clause
"""What all tests share."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: no test here judges by time.
settings.register_profile("pagepool", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "thorough",
    settings.get_profile("pagepool"),
    max_examples=1000,
    stateful_step_count=150,
)
settings.load_profile(os.environ.get("PAGEPOOL_TEST_PROFILE", "pagepool"))

# A script's background job (`make test &`) ignores Ctrl-C, and so would its children: the tests
# that send it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every pool is a checked one, also in the processes that tests start, unless whoever runs the tests
# says otherwise (0, 1, full) or the test does (the fixture plain_pools).
os.environ.setdefault("PAGEPOOL_CHECKED", "1")


@pytest.fixture
def plain_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is about pools that are not checked."""
    monkeypatch.delenv("PAGEPOOL_CHECKED", raising=False)


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture(autouse=True)
def _kept_reports(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    kept = _Kept()
    logger = logging.getLogger("pagepool")
    logger.addHandler(kept)
    try:
        yield kept.texts
    finally:
        logger.removeHandler(kept)
    if kept.texts and "reports" not in request.fixturenames:
        pytest.fail("checked mode found misuse:\n" + "\n".join(kept.texts))


@pytest.fixture
def reports(_kept_reports: list[str]) -> list[str]:
    """What checked mode has found so far in this test, which therefore does not fail of it."""
    return _kept_reports


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What was raised where nobody could be told, so far in this test."""
    raised: list[BaseException] = []

    def hook(u: Any) -> None:
        raised.append(u.exc_value.with_traceback(None))

    monkeypatch.setattr(sys, "unraisablehook", hook)
    return raised


@pytest.fixture
def in_child() -> Callable[[Callable[[], object]], None]:
    """Runs a function in a forked child; fails here if it failed there."""

    def run(function: Callable[[], object]) -> None:
        with warnings.catch_warnings():
            # 3.12 warns of fork with threads; the C core has its own by now.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            status = 1
            try:
                function()
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return run
