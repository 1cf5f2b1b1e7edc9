# SPDX-License-Identifier: BSD-2-Clause
"""Pages out of memory that somebody has."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

import pagepool


def test_a_buffer_is_cut_into_pages_and_held_until_the_last_is_gone() -> None:
    buffer = bytearray(20 * 4096)
    region = pagepool.Region(buffer)
    pool = pagepool.PagePool(provider=region)
    assert pool.provider is region
    pages = list(pool.alloc_bulk(100))
    assert len(pages) in (19, 20)  # an unaligned buffer loses its beginning
    assert region.info.limit == len(pages) << 12
    for i, page in enumerate(pages):
        page.view()[:] = bytes([i + 1]) * 4096
        at = region.offset(page)
        assert buffer[at : at + 4096] == bytes([i + 1]) * 4096
    with pytest.raises(pagepool.OutOfPages):
        pool.alloc()
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    view = pages[3].view()
    pool.put_bulk(pages)
    pool.close()
    del region, pool, pages, page
    with pytest.raises(BufferError):
        buffer.extend(b"x")  # the view is still there
    assert view[0] == 4
    del view
    buffer.extend(b"x")


@pytest.mark.parametrize("order", [0, 2])
def test_a_file_mapping(tmp_path: Path, order: int) -> None:
    path = tmp_path / "frames"
    path.write_bytes(bytes(1 << 20))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)
    region = pagepool.Region(mapping)
    with pagepool.PagePool(provider=region, order=order) as pool:
        page = pool.alloc()
        page.view()[:5] = b"frame"
        offset = region.offset(page)
        assert offset % (4096 << order) == 0
        mapping.flush()
        assert path.read_bytes()[offset : offset + 5] == b"frame"
        page.put()
    del pool, page, region
    mapping.close()  # nobody exports it any more


def test_shared_memory_is_another_processes_memory() -> None:
    region = pagepool.Region.shared(1 << 20)
    with pagepool.PagePool(provider=region) as pool, pool.alloc() as page:
        page.view()[:4] = b"ping"
        code = (
            "import mmap, sys; fd, at = map(int, sys.argv[1:]);"
            "m = mmap.mmap(fd, 0); assert m[at:at+4] == b'ping'; m[at:at+4] = b'pong'"
        )
        fd = region.fileno()
        subprocess.run(
            [sys.executable, "-c", code, str(fd), str(region.offset(page))],
            pass_fds=[fd],
            check=True,
        )
        assert bytes(page.view()[:4]) == b"pong"


def test_shared_memory_goes_with_its_region() -> None:
    region = pagepool.Region.shared(1 << 20)
    fd = region.fileno()
    os.fstat(fd)
    del region
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize(
    ("buffer", "error"),
    [
        (bytes(8192), BufferError),
        (memoryview(bytearray(1 << 16))[::2], BufferError),
        (b"", BufferError),
        (bytearray(100), pagepool.InvalidParameter),
        (bytearray(0), pagepool.InvalidParameter),
        (5, TypeError),
        (None, TypeError),
    ],
)
def test_buffers_that_are_refused(buffer: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        pagepool.Region(buffer)  # type: ignore[arg-type]
    if isinstance(buffer, bytearray):
        buffer.extend(b"x")  # not held


@pytest.mark.parametrize("size", [-1, 0, 4095, 1 << 46])
def test_sizes_of_shared_memory_that_are_refused(size: int) -> None:
    with pytest.raises((pagepool.InvalidParameter, pagepool.NoMemory)):
        pagepool.Region.shared(size)


def test_offsets_are_of_its_own_pages() -> None:
    region = pagepool.Region(bytearray(1 << 16))
    with pagepool.PagePool() as other, other.alloc() as page:
        with pytest.raises(pagepool.ForeignPage, match="not of this region"):
            region.offset(page)
        with pytest.raises(ValueError, match="no file"):
            region.fileno()
    with pagepool.PagePool(provider=region) as pool:
        page = pool.alloc()
        page.put()
        with pytest.raises(pagepool.PageGone):
            region.offset(page)


def test_providers_are_made_once_and_only_as_one_of_the_two() -> None:
    with pytest.raises(TypeError, match="an Arena or a Region"):
        pagepool.Provider()
    arena, region = pagepool.Arena(), pagepool.Region(bytearray(1 << 16))
    with pytest.raises(TypeError, match="is made once"):
        arena.__init__()
    with pytest.raises(TypeError, match="is made once"):
        region.__init__(bytearray(1 << 16))
    made = pagepool.Arena.__new__(pagepool.Arena)

    class Maker:
        def __index__(self) -> int:
            made.__init__(limit=4 << 20)
            return 8 << 20

    with pytest.raises(TypeError, match="is made once"):
        made.__init__(limit=Maker())
    assert made.info.limit == 4 << 20
    for cls in (pagepool.Provider, pagepool.Arena, pagepool.Region):
        never = cls.__new__(cls)
        assert "never made" in repr(never)
        with pytest.raises(pagepool.InvalidParameter, match="was never made"):
            pagepool.PagePool(provider=never)
        with pytest.raises(pagepool.InvalidParameter):
            _ = never.info


def test_what_releases_the_buffer_may_run_any_code() -> None:
    """A buffer's owner that goes with the last page, and uses the pool on its way."""
    pool = pagepool.PagePool()
    called = []

    class Owner(bytearray):
        pass

    buffer = Owner(1 << 16)

    def gone(_: object) -> None:
        called.append(pool.alloc().address)
        pool.put_bulk([])

    weak = weakref.ref(buffer, gone)
    region = pagepool.Region(buffer)
    small = pagepool.PagePool(provider=region)
    page = small.alloc()
    small.close()
    del buffer, region
    with pytest.warns(ResourceWarning):
        page.put()
        del small, page
        gc.collect()
    assert weak() is None
    assert len(called) == 1
    pool.close()
