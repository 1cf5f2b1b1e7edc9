# SPDX-License-Identifier: BSD-2-Clause
"""With PAGEPOOL_ENGINE=model in the environment the engine's tests are run on the model.

These are not, and why.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

#: Files of tests that are about the engine's own making.
FILES_NOT_HERE = {
    "test_callbacks.py": "Python code in the middle of the engine's calls, and other threads in it",
    "test_lacks.py": "the model asks the system for nothing",
    "test_reentrancy.py": "what CPython may run in the middle of the engine's calls",
    "test_sequences.py": "the engine against an account of its memory; here see test_side_by_side",
    "test_threads.py": "the engine under traffic",
}

#: Tests: a part of the name -> the reason.
NOT_HERE = {
    "device_that_was_never_made": "objects of C types that no constructor has made",
    "device_is_copied_or_pickled": "plain Python objects can be",
    "types_are_closed": "types in C",
    "while_another_thread_is_in_a_cons": "one call after the other, so the other thread waits",
    "while_another_thread_is_in_one": "one call after the other, so the other thread waits",
    "refusal_is_not_told_twice": "one call after the other, so the other thread waits",
    "fork": "no check after fork",
    "child": "no check after fork",
    "every_code_of_the_core": "reads the C sources, no pool",
    "numpy": "an address is not where the bytes are; memoryview(page)",
    "stalled": "the model has no clock",
    "interpreter_exit": "imports by itself, without PAGEPOOL_ENGINE",
    "subinterpreter": "imports by itself, without PAGEPOOL_ENGINE",
    "garbage_cycle": "memoryview(page)",
    "view_is_one_object": "the view is kept by who has it, not by the pool",
    "passed_to_a_buffer_consumer": "memoryview(page)",
    "dropped_in_time": "memoryview(page)",
    "views_end_a_holding": "memoryview(page)",
    "second_put_says_where": "memoryview(page)",
    "view_keeps_its_page_out": "memoryview(page)",
    "page_in_a_full_pool": "a page cannot be made unreadable",
    "page_is_a_writable_buffer": "memoryview(page)",
    "page_is_put_once": "memoryview(page)",
    "exactly_its_size": "memoryview(page)",
    "outlives_page_pool_and_arena": "memoryview(page)",
    "destructor_that": "what CPython may run in the middle of the engine's calls",
    "callback_of_a_view": "what CPython may run in the middle of the engine's calls",
    "weak_reference_does": "a weak reference to a view is a rule of the engine's own",
    "view_keeps_the_memory": "memoryview(page); parts of it are in test_on_the_model.py",
}

ON_THE_MODEL = os.environ.get("PAGEPOOL_ENGINE") == "model"
collect_ignore = list(FILES_NOT_HERE) if ON_THE_MODEL else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them as skipped."""
    if not ON_THE_MODEL:
        return
    for item in items:
        for part, reason in NOT_HERE.items():
            if part in item.name:
                item.add_marker(pytest.mark.skip(reason=f"on the model: {reason}"))


def pytest_configure() -> None:
    """A name that no test has any more is a mistake in the list."""
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    names = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
    gone = [part for part in NOT_HERE if not any(part in name for name in names)]
    assert not gone, f"no such tests: {gone}"
