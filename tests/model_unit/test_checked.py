# SPDX-License-Identifier: BSD-2-Clause
"""Checked mode of the model."""

from __future__ import annotations

import logging
import threading

import pytest

from pagepool import model as pagepool


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEPOOL_CHECKED", raising=False)


def test_who_has_what() -> None:
    with pagepool.PagePool(checked=True) as pool:
        assert pool.holders() == []
        batch = pool.alloc_bulk(2)
        page = pool.alloc()
        piece = pool.alloc_frag(100)
        holders = pool.holders()
        assert [holder.length for holder in holders] == [4096, 4096, 4096, 100]
        assert holders[2].address == page.address
        assert holders[2].allocated_at == page.allocated_at
        assert "in test_who_has_what" in holders[2].traceback
        assert {holder.thread for holder in holders} == {threading.current_thread().name}
        assert holders[0].age >= holders[3].age >= 0
        page.put()
        batch[1].put()
        assert [holder.length for holder in pool.holders()] == [4096, 100]
        batch.put()
        piece.put()
        assert pool.holders() == []


def test_errors_say_where_it_was_put() -> None:
    with pagepool.PagePool(checked=True) as pool:
        page, batch = pool.alloc(), pool.alloc_bulk(1)
        thread = threading.Thread(target=page.put, name="other")
        thread.start()
        thread.join()
        with pytest.raises(pagepool.PageGone, match=r"put already, at .* by thread 'other'") as e:
            page.put()
        allocated, put = e.value.__notes__
        assert "in test_errors_say" in allocated
        assert "in run" in put  # of the thread
        batch.put()
        with pytest.raises(pagepool.PageGone) as e:
            batch.put()
        assert len(e.value.__notes__) == 2


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize(("checked", "at", "found"), [(True, 70, False), ("full", 70, True)])
def test_a_write_after_the_put_is_found(
    checked: pagepool.checked.Checked, at: int, found: bool, caplog: pytest.LogCaptureFixture
) -> None:
    device = pagepool.Iommu().attach("eth0")
    with pagepool.PagePool(device=device, checked=checked, pool_size=1) as pool:
        page = pool.alloc()
        page.view()[:4] = b"mine"
        dma = page.dma
        page.put(allow_direct=True)
        assert device._table.find(dma).memory[:64] == b"Z" * 64  # type: ignore[union-attr, index]
        device.write(dma + at, b"late")
        page = pool.alloc()
        assert (len(caplog.records) == 1) is found
        page.put(allow_direct=True)
        device.write(dma + 3, b"late")
        with caplog.at_level(logging.ERROR, "pagepool"):
            caplog.clear()
            page = pool.alloc()
        assert f"use after put (byte 3 was written) of the page at {page.address:#x}" in caplog.text
        assert "put at" in caplog.text
        page.put()


def test_how_a_pool_gets_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for env, asked, checked in (
        ("", False, False),
        ("0", True, True),
        ("1", False, True),
        ("1", "full", "full"),
        ("full", False, "full"),
    ):
        monkeypatch.setenv("PAGEPOOL_CHECKED", env)
        assert pagepool.PagePool(checked=asked).checked == checked  # type: ignore[arg-type]
    monkeypatch.delenv("PAGEPOOL_CHECKED")
    for wrong in ("fast", 1, None):
        with pytest.raises(pagepool.InvalidParameter, match="checked is"):
            pagepool.PagePool(checked=wrong)  # type: ignore[arg-type]
    with pytest.raises(pagepool.NotSupported, match="is not checked: make it with checked=True"):
        pagepool.PagePool().holders()
