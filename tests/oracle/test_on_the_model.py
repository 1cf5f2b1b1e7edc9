# SPDX-License-Identifier: BSD-2-Clause
"""What is tested of the engine, and what people run, holds on the model too."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pagepool
from pagepool import engine, model

ROOT = Path(__file__).parents[2]
ENGINE_TESTS = ROOT / "tests" / "engine"

#: Tests of the engine that the model does not pass, and why: a part of the name -> the reason.
#: Files of tests that are about the engine's own making.
FILES_NOT_HERE = {
    "test_lacks.py": "the model asks the system for nothing",
    "test_reentrancy.py": "what CPython may run in the middle of the engine's calls",
    "test_sequences.py": "the engine against an account of its memory; here see test_side_by_side",
    "test_threads.py": "the engine under traffic",
}

NOT_HERE = {
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
    "page_is_a_writable_buffer": "memoryview(page)",
    "page_is_put_once": "memoryview(page)",
    "exactly_its_size": "memoryview(page)",
    "outlives_page_pool_and_arena": "memoryview(page)",
    "destructor_that": "what CPython may run in the middle of the engine's calls",
    "callback_of_a_view": "what CPython may run in the middle of the engine's calls",
    "weak_reference_does": "a weak reference to a view is a rule of the engine's own",
    "view_keeps_the_memory": "memoryview(page); parts of it follow below",
}


def load(path: Path) -> ModuleType:
    """The module of tests, with the model where it says ``pagepool``."""
    spec = importlib.util.spec_from_file_location(f"model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.pagepool = model  # type: ignore[attr-defined]
    return module


def engine_tests() -> list[object]:
    """Every test function of the engine, with each of its parameters."""
    found: list[object] = []
    for path in sorted(ENGINE_TESTS.glob("test_*.py")):
        if path.name in FILES_NOT_HERE:
            continue
        module = load(path)
        for name, function in vars(module).items():
            if not name.startswith("test_"):
                continue
            if any(part in name for part in NOT_HERE):
                continue
            marks = [m for m in getattr(function, "pytestmark", []) if m.name == "parametrize"]
            cases: list[dict[str, object]] = [{}]
            for mark in marks:
                names, values = mark.args
                names = [names] if isinstance(names, str) else list(names)
                cases = [
                    {**case, **dict(zip(names, value if len(names) > 1 else [value], strict=True))}
                    for case in cases
                    for value in values
                ]
            found += [
                pytest.param(function, case, id=f"{path.stem}-{name[5:]}-{i}")
                for i, case in enumerate(cases)
            ]
    return found


@pytest.mark.parametrize(("function", "case"), engine_tests())
def test_as_on_the_engine(function: object, case: dict[str, object], tmp_path: Path) -> None:
    assert callable(function)
    if "tmp_path" in inspect.signature(function).parameters:
        case = {**case, "tmp_path": tmp_path}
    # Parameters that were written with the engine's classes in them are the model's here.
    classes = {
        getattr(engine, name): getattr(model, name)
        for name in engine.__all__
        if hasattr(model, name)
    }
    function(**{k: classes.get(v, v) if isinstance(v, type) else v for k, v in case.items()})


def test_what_is_left_out_exists() -> None:
    text = "".join(path.read_text() for path in ENGINE_TESTS.glob("test_*.py"))
    names = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
    assert [part for part in NOT_HERE if not any(part in name for name in names)] == []


@pytest.mark.parametrize("how", ["put", "recycle_direct", "put_bulk", "after close"])
def test_a_view_keeps_the_memory(how: str) -> None:
    arena = model.Arena()
    pool = model.PagePool(provider=arena)
    page = pool.alloc()
    address = page.address
    view = page.view()[10:14]
    view[:] = b"kept"
    if how == "put":
        page.put()
    elif how == "recycle_direct":
        pool.recycle_direct(page)
    elif how == "put_bulk":
        pool.put_bulk([page, pool.alloc()])
    else:
        pool.close()
        page.put()
    assert pool.stats.recycle_released_refcnt == 1
    with model.PagePool(provider=arena) as other:
        batch = other.alloc_bulk(400)
        assert address not in {page.address for page in batch}
        batch.put()
    pool.close()
    assert bytes(view) == b"kept"
    assert arena.info.out == 1 << 12
    del view
    assert arena.info.out == 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs __buffer__ of Python 3.12")
def test_a_page_is_a_buffer() -> None:
    with model.PagePool() as pool:
        page = pool.alloc()
        view = memoryview(page)  # type: ignore[arg-type, unused-ignore]
        view[:2] = b"hi"
        assert bytes(page.view()[:2]) == b"hi"
        page.put()
        assert pool.stats.recycle_released_refcnt == 1


def test_the_serial_numbers_wrap() -> None:
    with model.PagePool() as pool:
        flight = pool._pool.in_flight
        flight.held = flight.released = 0xFFFFFFFF - 10
        pages = [pool.alloc() for _ in range(100)]
        assert (pool.inflight, flight.held < flight.released) == (128, True)
        pool.put_bulk(pages)
        pool.update_nid(0)
        assert pool.inflight == 100
    assert pool.inflight == 0


def run(code: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_the_examples_in_the_documentation() -> None:
    text = (ROOT / "docs" / "pool.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```\n\n?(?:```text\n(.*?)^```)?", text, re.M | re.S)
    # What the machine lacks is nothing that the model could know.
    blocks = [block for block in blocks if "lacks" not in block[0]]
    code = "".join(block for block, _ in blocks)
    done = run(
        ["-c", code + "assert pagepool.PagePool.__module__ == 'pagepool.model.pool'"],
        PAGEPOOL_ENGINE="model",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(output for _, output in blocks)


def test_the_receive_loop() -> None:
    done = run([str(ROOT / "examples" / "receive.py")], PAGEPOOL_ENGINE="model")
    assert done.returncode == 0, done.stderr
    assert "direct 3200, through the ring" in done.stdout


def test_unbind() -> None:
    example = [str(ROOT / "examples" / "unbind.py")]
    done = [run(example, PAGEPOOL_ENGINE=which) for which in ("model", "c")]
    assert done[0].returncode == 0, done[0].stderr
    assert done[0].stdout == done[1].stdout
    old, new = done[0].stdout.split("\n\n")
    assert "4 refused by the IOMMU; 0 pages in flight" in old
    assert "eth0: unmap of 4096 bytes at 0x40000 refused, device gone; page 63" in old
    assert "it left 0 mappings behind" in new
    assert "0 refused by the IOMMU; 0 pages in flight" in new


def test_the_choice_of_the_engine() -> None:
    code = ["-c", "import pagepool; print(pagepool.PagePool.__module__)"]
    assert run(code, PAGEPOOL_ENGINE="model").stdout == "pagepool.model.pool\n"
    assert run(code, PAGEPOOL_ENGINE="c").stdout == "pagepool.engine._core\n"
    assert "PAGEPOOL_ENGINE is 'x': must be c" in run(code, PAGEPOOL_ENGINE="x").stderr


def test_without_the_c_code_the_error_says_how_to_use_the_model() -> None:
    hide = "import sys; sys.modules['pagepool.engine._core'] = None; import pagepool; "
    done = run(["-c", hide + "pagepool.PagePool"], PAGEPOOL_ENGINE="")
    assert "PAGEPOOL_ENGINE=model" in done.stderr
    done = run(["-c", hide + "print(pagepool.PagePool().alloc().offset)"], PAGEPOOL_ENGINE="model")
    assert done.stdout == "0\n"


def test_the_model_imports_no_c_and_nothing_else_of_pagepool() -> None:
    done = run(
        [
            "-c",
            "import pagepool.model, sys; print(*sorted(m for m in sys.modules "
            "if m.split('.')[0] == 'pagepool'))",
        ]
    )
    rooms = {name.split(".")[1] for name in done.stdout.split() if "." in name}
    assert rooms == {"errors", "model", "nic", "snapshot"}


def test_the_interface_is_the_engines() -> None:
    assert engine.__all__ == model.__all__ == pagepool.__all__
    for name in engine.__all__:
        theirs = {n for n in dir(getattr(engine, name)) if not n.startswith("_")}
        assert theirs <= set(dir(getattr(model, name)))
