# SPDX-License-Identifier: BSD-2-Clause
"""Pools with a device: what is mapped, synced and unmapped, and when."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from model_unit.devices import Plain, Synced
from pagepool import model as pagepool

PAGE = 4096


def counts(pool: pagepool.PagePool) -> dict[str, int]:
    """Those of the DMA statistics that are not 0."""
    return {name: n for name, n in dataclasses.asdict(pool.dma_stats).items() if n}


def test_a_page_is_mapped_while_it_is_in_the_pool() -> None:
    device = Plain()
    with pagepool.PagePool(device=device) as pool:
        assert pool.device is device
        assert (pool.dma_dir, pool.offset, pool.max_len) == ("from_device", 0, PAGE)
        page = pool.alloc()
        assert device.take_calls() == [
            ("map", n << 16, PAGE, "from_device") for n in range(1, 65)
        ]  # a refill, in the order of the provider
        assert page.dma == 64 << 16
        assert device.memory[page.dma] == page.address
        pool.put(page)
        page = pool.alloc()
        assert page.dma == 63 << 16  # the cache first
        pool.put(page)
        assert device.take_calls() == []  # it goes round without its mapping being touched
    assert counts(pool) == {"maps": 64, "unmaps": 64}
    assert pool.inflight == 0
    assert device.memory == {}


def test_the_devices_view_is_nobody_who_holds_the_page() -> None:
    device = Plain()
    with pagepool.PagePool(device=device) as pool:
        pool.alloc().put()
        assert pool.stats.recycle_released_refcnt == 0
        assert pool.stats.recycle_ring == 1


@pytest.mark.parametrize("order", [0, 3])
def test_a_page_that_cannot_be_mapped_is_skipped_and_goes_back(order: int) -> None:
    arena = pagepool.Arena(limit=4 << 20)
    device = Plain(refuse={0, 3} if order == 0 else {0})
    with pagepool.PagePool(provider=arena, device=device, order=order) as pool:
        if order:
            with pytest.raises(pagepool.OutOfPages, match="none could be mapped") as caught:
                pool.alloc()
            assert str(caught.value.__cause__) == "map 0 refused"
            assert pool.stats.alloc_slow_high_order == 0
        batch = pool.alloc_bulk(62 if order == 0 else 1)
        dmas = [page.dma >> 16 for page in batch]
        # The others keep their order: the newest of the cache first.
        expected = [n for n in range(64, 0, -1) if n not in (1, 4)] if order == 0 else [2]
        assert dmas == expected
        assert pool.dma_stats.map_errors == len(device.refuse)
        assert pool.dma_stats.maps == pool.inflight == len(batch)
        assert pool.stats.alloc_slow + pool.stats.alloc_slow_high_order == 1
        assert arena.info.out == len(batch) * PAGE << order
        batch.put()
    assert arena.info.out == 0


def test_no_page_can_be_mapped() -> None:
    arena = pagepool.Arena(limit=4 << 20)
    device = Plain(refuse=set(range(64)))
    with pagepool.PagePool(provider=arena, device=device) as pool:
        with pytest.raises(pagepool.OutOfPages, match="device plain") as caught:
            pool.alloc_frag(100)
        assert str(caught.value.__cause__) == "map 63 refused"
        assert counts(pool) == {"map_errors": 64}
        assert (pool.inflight, pool.stats.alloc_slow, pool.stats.alloc_empty) == (0, 0, 1)
        assert arena.info.out == 0
        pool.alloc().put()  # the next time it goes
    with pagepool.PagePool(provider=arena, device=device) as pool:
        everything = pool.alloc_bulk(5000)
        with pytest.raises(pagepool.OutOfPages, match="at its limit") as caught:
            pool.alloc()
        assert caught.value.__cause__ is None
        everything.put()


def test_what_map_gives_must_be_an_address() -> None:
    class Wrong(Plain):
        def map(self, address: int, length: int, direction: object) -> int:
            return -1

    with pagepool.PagePool(device=Wrong()) as pool:
        with pytest.raises(pagepool.OutOfPages) as caught:
            pool.alloc()
        assert isinstance(caught.value.__cause__, pagepool.InvalidParameter)


def test_sync_when_a_page_enters_and_when_it_is_recycled() -> None:
    device = Synced()
    with pagepool.PagePool(
        device=device,
        dma_sync=True,
        dma_dir="bidirectional",
        offset=256,
        max_len=1536,
        pool_size=1,
    ) as pool:
        page, other, third = pool.alloc(), pool.alloc(), pool.alloc()
        calls = device.take_calls()
        assert calls[:2] == [
            ("map", 1 << 16, PAGE, "bidirectional"),
            ("for_device", 1 << 16, 256, 1536, "bidirectional"),
        ]
        assert counts(pool) == {"maps": 64, "syncs": 64, "sync_bytes": 64 * 1536}
        before = pool.dma_stats

        def synced(page: pagepool.Page, n: int) -> list[tuple[object, ...]]:
            return [("for_device", page.dma, 256, n, "bidirectional")]

        expected = synced(page, 100)
        pool.put(page, dma_sync_size=100, allow_direct=True)
        assert device.take_calls() == expected
        page = pool.alloc()
        pool.put(page, dma_sync_size=0)  # into the ring, nothing synced
        assert device.take_calls() == []
        expected = [*synced(other, 1536), ("unmap", other.dma, PAGE, "bidirectional")]
        pool.put(other, dma_sync_size=5000)  # the ring is full: synced all the same
        assert device.take_calls() == expected
        assert (pool.stats.recycle_ring, pool.stats.recycle_ring_full) == (1, 1)
        done = pool.dma_stats - before
        assert (done.syncs, done.sync_bytes, done.unmaps) == (2, 1636, 1)
        view = third.view()  # held: it leaves without a sync
        dma = third.dma
        pool.put(third)
        assert device.take_calls() == [("unmap", dma, PAGE, "bidirectional")]
        del view


def test_put_bulk_and_batches_sync_all() -> None:
    device = Synced()
    napi = pagepool.Napi()
    with pagepool.PagePool(device=device, dma_sync=True, max_len=2048, napi=napi) as pool:
        with napi:
            batch, pages = pool.alloc_bulk(3), [pool.alloc(), pool.alloc()]
            device.take_calls()
            pool.put_bulk(pages)
        pool.put_bulk(batch)
        calls = device.take_calls()
        assert [(name, length) for name, _, _, length, _ in calls] == [("for_device", 2048)] * 5
        assert (pool.stats.recycle_cached, pool.stats.recycle_ring) == (2, 3)


def test_pieces_are_synced_with_the_last_put_and_when_their_page_is_used_again() -> None:
    device = Synced()
    with pagepool.PagePool(device=device, dma_sync=True) as pool:
        first, second, third = (pool.alloc_frag(2048) for _ in range(3))
        assert second.dma == first.dma + 2048
        device.take_calls()
        first.put()
        assert device.take_calls() == []
        dma = second.dma - 2048
        pool.put(second, dma_sync_size=64)  # the last: it is the page
        assert device.take_calls() == [("for_device", dma, 0, 64, "from_device")]
        dma = third.dma
        third.put()
        assert device.take_calls() == []
        fourth = pool.alloc_frag(4096)  # does not fit: all are back, the page is used again
        assert fourth.dma == dma
        assert device.take_calls() == [("for_device", dma, 0, 4096, "from_device")]
        fourth.put()


def test_what_needs_no_sync_is_not_synced() -> None:
    for device in (Plain(), pagepool.NO_DEVICE):
        with pagepool.PagePool(device=device, dma_sync=True) as pool:
            page = pool.alloc()
            pool.dma_sync_for_cpu(page)
            page.put()
        assert counts(pool) == {"maps": 64, "unmaps": 64}


def test_sync_for_the_cpu() -> None:
    device = Synced()
    with pagepool.PagePool(device=device, offset=64, max_len=1000) as pool, pool.alloc() as page:
        piece = pool.alloc_frag(128)
        behind = pool.alloc_frag(1024)
        device.take_calls()
        for kwargs in ({}, {"offset": 100, "size": 50}, {"offset": 990}, {"offset": 1000}):
            pool.dma_sync_for_cpu(page, **kwargs)
        pool.dma_sync_for_cpu(piece)  # what it has of the device's part
        pool.dma_sync_for_cpu(behind, offset=10, size=20)
        pool.dma_sync_for_cpu(behind, size=5000)
        assert [call[2:4] for call in device.take_calls()] == [
            (64, 1000),
            (164, 50),
            (1054, 10),
            (64, 64),
            (138, 20),
            (128, 936),
        ]
        assert pool.dma_stats.syncs == 0
        with pagepool.PagePool() as other, other.alloc() as foreign:
            with pytest.raises(pagepool.ForeignPage):
                pool.dma_sync_for_cpu(foreign)
            with pytest.raises(pagepool.NotSupported, match="made without a device"):
                other.dma_sync_for_cpu(foreign)
        with pytest.raises(pagepool.InvalidParameter):
            pool.dma_sync_for_cpu(page, offset=-1)
        piece.put()
        behind.put()


def test_close_unmaps_what_is_out_by_number_and_what_comes_later_is_left_alone() -> None:
    device = Synced()
    pool = pagepool.PagePool(device=device, dma_sync=True)
    batch = pool.alloc_bulk(3)
    held, piece = pool.alloc(), pool.alloc_frag(64)
    expected = sorted(page.dma for page in [*batch, held, piece])  # by number here as well
    view = held.view()
    held.put()  # left: unmapped already
    expected.remove(61 << 16)
    device.take_calls()
    pool.close()
    unmapped = [call[1] for call in device.take_calls()]
    assert unmapped[-4:] == expected
    assert len(unmapped) == 63
    assert device.memory == {}
    assert counts(pool) == {
        "maps": 64,
        "unmaps": 60,
        "unmaps_destroy": 4,
        "syncs": 64,
        "sync_bytes": 64 * PAGE,
    }
    with pytest.raises(pagepool.DeviceGone, match="unmapped when its pool was closed"):
        _ = piece.dma
    pool.dma_sync_for_cpu(piece)
    pool.put(batch[0], dma_sync_size=0)  # nothing would have been synced
    piece.put()
    kept = batch[1].view()
    batch.put()
    assert device.take_calls() == []
    stats = pool.dma_stats
    assert (stats.unmaps_skipped, stats.syncs_skipped, pool.inflight) == (4, 2, 0)
    assert stats.maps == stats.unmaps + stats.unmaps_destroy
    del view, kept


def test_without_tracking_late_pages_are_synced_and_unmapped_when_they_come() -> None:
    device = Synced()
    pool = pagepool.PagePool(device=device, dma_sync=True, track_mappings=False)
    page, other = pool.alloc(), pool.alloc()
    pool.close()
    device.take_calls()
    dma = page.dma  # it is mapped still
    pool.dma_sync_for_cpu(page, size=8)
    page.put()
    assert device.take_calls() == [
        ("for_cpu", dma, 0, 8, "from_device"),
        ("for_device", dma, 0, PAGE, "from_device"),
        ("unmap", dma, PAGE, "from_device"),
    ]
    other.put()
    assert counts(pool) == {"maps": 64, "unmaps": 64, "syncs": 66, "sync_bytes": 66 * PAGE}


def test_pages_that_leave_on_the_way_are_unmapped() -> None:
    arena = pagepool.Arena(limit=4 << 20, reserve=512 * PAGE)
    device = Plain()
    with pagepool.PagePool(provider=arena, device=device, node=0) as pool:
        pool.alloc().put()  # in the ring, on node 0
        pool.update_nid(1)  # the cache leaves
        assert pool.dma_stats.unmaps == 63
        pool.alloc().put()  # waives it
        assert (pool.stats.alloc_waive, pool.dma_stats.unmaps) == (1, 64)
        pages = [pool.alloc() for _ in range(600)]
        emergency = [page for page in pages if page.pfmemalloc]
        assert emergency
        unmaps = pool.dma_stats.unmaps
        pool.put_bulk(pages)
        assert pool.dma_stats.unmaps == unmaps + len(emergency)
    assert pool.dma_stats.maps == pool.dma_stats.unmaps
    assert arena.info.out == 0


def test_a_page_on_its_way_to_another_pool_loses_its_mapping() -> None:
    arena = pagepool.Arena(limit=4 << 20)
    with pagepool.PagePool(provider=arena, device=Plain()) as pool:
        first = pool.alloc()
        address = first.address
        first.put()
    with pagepool.PagePool(provider=arena) as pool:
        batch = pool.alloc_bulk(64)
        page = next(page for page in batch if page.address == address)
        for ask in (lambda: page.dma, lambda: pool.dma_stats):
            with pytest.raises(pagepool.NotSupported, match="made without a device"):
                ask()
        batch.put()


def test_what_unmap_and_sync_raise_is_shown_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Synced):
        def unmap(self, dma: int, length: int, direction: object) -> None:
            raise RuntimeError("unmap")

        def sync_for_device(self, dma: int, offset: int, length: int, direction: object) -> None:
            raise KeyboardInterrupt("sync")

    shown: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: shown.append(str(args.exc_value)))
    with pagepool.PagePool(device=Broken(), dma_sync=True) as pool:
        pool.alloc().put()
    assert pool.inflight == 0
    assert counts(pool) == {"maps": 64, "unmaps": 64, "syncs": 65, "sync_bytes": 65 * PAGE}
    assert shown == ["sync"] * 65 + ["unmap"] * 64


def test_parameters_that_are_refused() -> None:
    device = Synced()
    never = Plain.__new__(Plain)
    for kwargs, why in (
        ({"dma_sync": True}, "without a device"),
        ({"device": device, "dma_sync": True, "max_len": 0}, "nothing to sync"),
        ({"device": device, "dma_sync": True, "offset": PAGE}, "nothing to sync"),
        ({"device": device, "offset": 1, "max_len": PAGE}, "more than a page of 4096 bytes"),
        ({"device": device, "offset": PAGE + 1}, "more than a page"),
        ({"device": device, "offset": -1}, "offset is -1"),
        ({"device": device, "max_len": 1 << 32}, "max_len is"),
        ({"device": device, "dma_dir": "to_device"}, "for receiving"),
        ({"device": device, "dma_dir": "up"}, "dma_dir is 'up'"),
        ({"device": never}, "this Plain was never made"),
    ):
        with pytest.raises(pagepool.InvalidParameter, match=why) as caught:
            pagepool.PagePool(**kwargs)
        assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="must be a Device"):
        pagepool.PagePool(device="eth0")  # type: ignore[arg-type]
    pool = pagepool.PagePool(device=device, order=1, offset=100)
    assert (pool.offset, pool.max_len) == (100, 2 * PAGE - 100)
    assert pagepool.PagePool(device=device, max_len=0).max_len == PAGE


def test_a_regions_pages_are_mapped_where_they_are() -> None:
    buffer = bytearray(20 * PAGE)
    region = pagepool.Region(buffer)
    device = Plain()
    iommu = pagepool.Iommu().attach("eth0")
    for eth in (device, iommu):
        with pagepool.PagePool(provider=region, device=eth) as pool, pool.alloc() as page:
            at = region.offset(page)
            if eth is iommu:
                iommu.write(page.dma, b"wire")
                assert buffer[at : at + 4] == b"wire"
            else:
                assert device.memory[page.dma] == page.address
    del region, pool, page
    buffer.extend(b"x")  # nobody has it any more


def test_no_device_knows_addresses() -> None:
    none = pagepool.NO_DEVICE
    assert none.name == "none"
    assert none.identity
    with pagepool.PagePool(device=none) as pool:
        page = pool.alloc()
        assert page.dma == page.address
        with pytest.raises(pagepool.NotSupported):
            none.write(page.dma, b"x")  # any address would do: the page has a view
        page.put()


def test_devices_of_ones_own() -> None:
    class Named(Plain):
        def __init__(self, name: str) -> None:
            pagepool.Device.__init__(self, name)

    assert Named("x" * 50).name == "x" * 31
    assert Named("é" * 20).name == "é" * 15
    with pytest.raises(TypeError, match="must be a str"):
        Named(5)  # type: ignore[arg-type]
    with pytest.raises(pagepool.InvalidParameter, match="device lazy: a device needs map and"):
        pagepool.Device("lazy")
    for call in (lambda: Plain().write(0, b""), lambda: Plain().read(0, 0)):
        with pytest.raises(pagepool.NotSupported, match="device plain was made without"):
            call()
