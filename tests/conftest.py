# SPDX-License-Identifier: BSD-2-Clause
"""What all tests share."""

from __future__ import annotations

import os
import signal

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
