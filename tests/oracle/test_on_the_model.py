# SPDX-License-Identifier: BSD-2-Clause
"""What is tested of the engine, and what people run, holds on the model too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pagepool
from pagepool import engine, model

ROOT = Path(__file__).parents[2]
ENGINE_TESTS = ROOT / "tests" / "engine"


def test_as_on_the_engine() -> None:
    """The engine's tests, but for those that tests/engine/conftest.py names with the reason."""
    done = run(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(ENGINE_TESTS)], PAGEPOOL_ENGINE="model"
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 100, done.stdout


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
