# SPDX-License-Identifier: BSD-2-Clause
"""Devices, of one's own and behind an IOMMU; what pools ask of them; a NIC over them."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import weakref
from collections.abc import Callable
from typing import Any, Literal

import pytest

import pagepool
from pagepool.engine import _core

Direction = Literal["bidirectional", "to_device", "from_device"]
Asked = tuple[object, ...]


class Plain(pagepool.Device):
    """Writes down what it is asked. Needs no sync."""

    def __init__(self, name: str = "plain") -> None:
        super().__init__(name)
        self.asked: list[Asked] = []
        self.mapped: dict[int, int] = {}  # dma -> address
        self.refuse: set[int] = set()  # maps, by number, from 1
        self.maps = 0

    def map(self, address: int, length: int, direction: Direction) -> int:
        self.maps += 1
        if self.maps in self.refuse:
            raise OSError(f"map {self.maps}")
        dma = self.maps << 24
        self.mapped[dma] = address
        self.asked.append(("map", address, length, direction))
        return dma

    def unmap(self, dma: int, length: int, direction: Direction) -> None:
        self.asked.append(("unmap", self.mapped.pop(dma), length, direction))

    def take(self, *names: str) -> list[Asked]:
        asked, self.asked = self.asked, []
        return [it for it in asked if not names or it[0] in names]


class ForDevice(Plain):
    def sync_for_device(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        self.asked.append(("for_device", self.mapped[dma], offset, length, direction))


class ForCpu(Plain):
    def sync_for_cpu(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        self.asked.append(("for_cpu", self.mapped[dma], offset, length, direction))


class Both(ForDevice, ForCpu):
    pass


@pytest.fixture
def faults() -> list[pagepool.Fault]:
    return []


@pytest.fixture
def iommu(faults: list[pagepool.Fault]) -> pagepool.Iommu:
    return pagepool.Iommu(on_fault=faults.append)


@pytest.fixture
def eth0(iommu: pagepool.Iommu) -> pagepool.IommuDevice:
    return iommu.attach("eth0")


# ---- a device of one's own ----------------------------------------------------------------------


def test_a_page_is_mapped_when_it_enters_and_unmapped_when_it_leaves() -> None:
    device = Plain()
    pool = pagepool.PagePool(device=device, order=2, dma_dir="bidirectional")
    page = pool.alloc()
    assert device.take() == [("map", page.address, 16384, "bidirectional")]
    assert page.dma == 1 << 24
    address = page.address
    page.put()
    again = pool.alloc()
    assert (again.address, again.dma, device.asked) == (address, 1 << 24, [])  # it stays mapped
    again.put()
    pool.close()
    assert device.take() == [("unmap", address, 16384, "bidirectional")]


def test_a_page_that_cannot_be_mapped_is_done_without() -> None:
    arena = pagepool.Arena()
    device = Plain()
    device.refuse = {1, 7, 64}
    with pagepool.PagePool(device=device, provider=arena) as pool:
        batch = pool.alloc_bulk(61)
        assert (device.maps, pool.inflight, arena.info.out) == (64, 61, 61 * 4096)
        assert (pool.dma_stats.maps, pool.dma_stats.map_errors) == (61, 3)
        assert sorted(p.address for p in batch) == sorted(device.mapped.values())
        assert pool.stats.alloc_slow == 1
        batch.put()
    assert (device.mapped, arena.info.out) == ({}, 0)


@pytest.mark.parametrize("order", [0, 1])
def test_nothing_can_be_mapped(order: int) -> None:
    arena = pagepool.Arena()
    device = Plain("broken")
    device.refuse = set(range(1000))
    uses: list[Callable[[pagepool.PagePool], object]] = [
        lambda pool: pool.alloc(),
        lambda pool: pool.alloc_bulk(3),
        lambda pool: pool.alloc_frag(100),
    ]
    with pagepool.PagePool(device=device, provider=arena, order=order) as pool:
        for use in uses:
            with pytest.raises(pagepool.OutOfPages, match="none could be mapped for device") as e:
                use(pool)
            assert isinstance(e.value.__cause__, OSError)
            assert "broken, 0 pages in flight" in str(e.value)
        assert (pool.inflight, arena.info.out, pool.stats.alloc_slow) == (0, 0, 0)
        device.refuse = set()
        pool.alloc().put()


@pytest.mark.parametrize(
    ("gives", "cause"),
    [
        ("12", TypeError),
        (None, TypeError),
        (1.0, TypeError),
        (-1, pagepool.InvalidParameter),
        (1 << 64, pagepool.InvalidParameter),
    ],
)
def test_map_gives_no_address(gives: Any, cause: type[Exception]) -> None:
    class Odd(Plain):
        def map(self, address: int, length: int, direction: Direction) -> int:
            return gives  # type: ignore[no-any-return]

    with pagepool.PagePool(device=Odd()) as pool:
        with pytest.raises(pagepool.OutOfPages) as e:
            pool.alloc()
        assert type(e.value.__cause__) is cause
        assert pool.dma_stats.map_errors == 64


@pytest.mark.parametrize("dma", [0, (1 << 64) - 4096])
def test_any_address_of_64_bits_will_do(dma: int) -> None:
    class At(Plain):
        def map(self, address: int, length: int, direction: Direction) -> int:
            self.mapped[dma] = address
            return dma

    pool = pagepool.PagePool(device=At(), order=1)
    page = pool.alloc()
    assert page.dma == dma
    pool.close()
    with pytest.raises(pagepool.DeviceGone):
        _ = page.dma
    page.put()


def test_no_mapping_error_is_told_of_an_older_call() -> None:
    arena = pagepool.Arena(limit=4 << 20)
    device = Plain()
    device.refuse = {3}
    with pagepool.PagePool(device=device, provider=arena) as pool:
        batch = pool.alloc_bulk(2000)
        assert len(batch) == 1024
        with pytest.raises(pagepool.OutOfPages, match="at its limit") as e:
            pool.alloc()
        assert e.value.__cause__ is None
        batch.put()


def test_what_unmap_and_sync_raise_is_shown_and_nothing_is_lost(
    unraisable: list[BaseException],
) -> None:
    class Raises(Both):
        def unmap(self, dma: int, length: int, direction: Direction) -> None:
            raise KeyError("unmap")

        def sync_for_device(self, *_: object) -> None:
            raise KeyError("for device")

        def sync_for_cpu(self, *_: object) -> None:
            raise KeyError("for cpu")

    arena = pagepool.Arena()
    pool = pagepool.PagePool(device=Raises(), provider=arena, order=1, dma_sync=True)
    page = pool.alloc()
    assert [e.args for e in unraisable] == [("for device",)]
    pool.dma_sync_for_cpu(page)
    page.put()
    pool.close()
    assert [e.args[0] for e in unraisable[1:]] == ["for cpu", "for device", "unmap"]
    assert {type(e) for e in unraisable} == {KeyError}
    assert (pool.inflight, arena.info.out, pool.dma_stats.unmaps) == (0, 0, 1)


def test_a_device_needs_map_and_unmap() -> None:
    class Neither(pagepool.Device):
        pass

    class NoUnmap(pagepool.Device):
        def map(self, address: int, length: int, direction: Direction) -> int:
            return 1

    for type_ in (pagepool.Device, Neither, NoUnmap):
        with pytest.raises(pagepool.InvalidParameter, match="needs map and unmap"):
            type_("x")
    with pytest.raises(TypeError):
        Plain(3)  # type: ignore[arg-type]


def test_a_device_that_was_never_made() -> None:
    class Forgets(Plain):
        def __init__(self) -> None:
            pass

    device = Forgets()
    with pytest.raises(pagepool.InvalidParameter, match="this Forgets was never made"):
        pagepool.PagePool(device=device)
    assert device.name == "device"
    for type_ in (_core.IommuDevice, type(pagepool.NO_DEVICE)):
        empty = type_.__new__(type_)
        with pytest.raises(pagepool.InvalidParameter, match="never made"):
            pagepool.PagePool(device=empty)
        repr(empty)
        with pytest.raises(TypeError):
            type_()
        # Not that way, either.
        with pytest.raises(TypeError, match="not made by hand"):
            pagepool.Device.__init__(empty, "x")
    empty = _core.IommuDevice.__new__(_core.IommuDevice)
    for use in (
        empty.unbind,
        lambda: empty.mappings,
        lambda: empty.write(0, b"x"),
        lambda: empty.read(0, 1),
        lambda: empty.unmap(0, 1, "from_device"),
        lambda: empty.sync_for_cpu(0, 0, 1, "from_device"),
        lambda: empty.sync_for_device(0, 0, 1, "from_device"),
    ):
        with pytest.raises(pagepool.InvalidParameter, match="never made"):
            use()


def test_a_device_is_made_once() -> None:
    device = Plain("first")
    with pytest.raises(TypeError, match="made once"):
        pagepool.Device.__init__(device, "second")
    assert device.name == "first"
    with pagepool.PagePool(device=device) as pool:
        pool.alloc().put()


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("a" * 40, "a" * 31),
        ("", ""),
        ("é" * 16, "é" * 15),  # 32 bytes: no half of a character
        ("a" * 30 + "€", "a" * 30),
        ("nul\0nul", "nul?nul"),
        ("sur\ud800rogate", "sur?rogate"),
    ],
)
def test_31_bytes_of_a_name_are_kept(name: str, kept: str, iommu: pagepool.Iommu) -> None:
    assert Plain(name).name == kept
    assert iommu.attach(name).name == kept
    assert Plain(type("Str", (str,), {"encode": None})(name)).name == kept
    assert repr(Plain(name)) == f"<pagepool.Plain {kept}>"


@pytest.mark.parametrize("type_", [Plain, ForDevice, ForCpu, Both])
def test_only_what_is_overridden_is_synced(type_: type[Plain]) -> None:
    device = type_()
    with pagepool.PagePool(device=device, order=1, dma_sync=True, offset=64, max_len=500) as pool:
        page = pool.alloc()
        at = page.address
        pool.dma_sync_for_cpu(page, size=100)
        pool.put(page, dma_sync_size=100)
        for_device = [
            ("for_device", at, 64, 500, "from_device"),
            ("for_device", at, 64, 100, "from_device"),
        ]
        assert device.take("for_device") == (for_device if issubclass(type_, ForDevice) else [])
        stats = pool.dma_stats
        if issubclass(type_, ForDevice):
            assert (stats.syncs, stats.sync_bytes) == (2, 600)
        else:
            assert (stats.syncs, stats.sync_bytes) == (0, 0)
        page = pool.alloc()
        pool.dma_sync_for_cpu(page, 10, 20)
        for_cpu = [("for_cpu", at, 74, 20, "from_device")]
        assert device.take("for_cpu") == (for_cpu if issubclass(type_, ForCpu) else [])
        page.put()


def test_without_dma_sync_the_device_is_not_told() -> None:
    device = Both()
    with pagepool.PagePool(device=device) as pool:
        page = pool.alloc()
        pool.put(page)
        assert (device.take("for_device"), pool.dma_stats.syncs) == ([], 0)


def test_an_instances_own_methods() -> None:
    device = Plain()
    device.map = lambda address, length, direction: 4096  # type: ignore[method-assign]
    seen: list[int] = []
    device.unmap = lambda dma, length, direction: seen.append(dma)  # type: ignore[method-assign]
    with pagepool.PagePool(device=device, order=1) as pool:
        pool.alloc().put()
    assert seen == [4096]


def test_the_base_class_by_hand() -> None:
    device = Plain()
    with pytest.raises(NotImplementedError):
        pagepool.Device.map(device, 0, 1, "from_device")
    with pytest.raises(NotImplementedError):
        pagepool.Device.unmap(device, 0, 1, "from_device")
    device.sync_for_device(0, 0, 1, "from_device")
    for use in (lambda: device.write(0, b"x"), lambda: device.read(0, 1)):
        with pytest.raises(pagepool.NotSupported, match="device plain was made without"):
            use()
    assert not device.identity


# ---- parameters of a pool -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dma_dir": "to_device"}, "must be one of from_device, bidirectional"),
        ({"dma_dir": "sideways"}, "must be one of"),
        ({"dma_dir": None}, "must be one of"),
        ({"dma_dir": []}, "must be one of"),
        ({"dma_sync": True, "max_len": 0}, "nothing to sync"),
        ({"offset": 4097}, "more than a page"),
        ({"offset": 4096, "max_len": 1}, "more than a page"),
        ({"max_len": 4097}, "more than a page"),
        ({"offset": 0xFFFFFFFF, "max_len": 0xFFFFFFFF}, "more than a page"),
        ({"offset": -1}, "offset is -1"),
        ({"offset": 1 << 32}, "must be from 0"),
        ({"max_len": -1}, "max_len is -1"),
        ({"max_len": 1 << 32}, "must be from 0"),
        ({"offset": 4096, "dma_sync": True}, "nothing to sync"),
    ],
)
def test_parameters_of_a_device_that_are_refused(
    arguments: dict[str, Any], message: str, eth0: pagepool.IommuDevice
) -> None:
    with pytest.raises(pagepool.InvalidParameter, match=message):
        pagepool.PagePool(device=eth0, **arguments)
    assert eth0.mappings == []


def test_parameters_without_a_device() -> None:
    with pytest.raises(pagepool.InvalidParameter, match="dma_sync without a device"):
        pagepool.PagePool(dma_sync=True)
    with pytest.raises(TypeError):
        pagepool.PagePool(device=pagepool.Iommu())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pagepool.PagePool(offset=1.5)  # type: ignore[arg-type]
    with pagepool.PagePool() as pool:
        assert (pool.device, pool.dma_dir) == (None, "from_device")
        assert (pool.offset, pool.max_len) == (0, 4096)
        with pytest.raises(pagepool.NotSupported, match="made without a device"):
            _ = pool.dma_stats
    # A NIC without an IOMMU writes there too.
    for part in ({"offset": 64, "max_len": 4096}, {"offset": 4097}):
        with pytest.raises(pagepool.InvalidParameter, match="more than a page of 4096 bytes"):
            pagepool.PagePool(**part)  # type: ignore[arg-type]


def test_facts_of_a_pool_with_a_device(eth0: pagepool.IommuDevice) -> None:
    pool = pagepool.PagePool(device=eth0, order=1, offset=100, dma_dir="bidirectional")
    assert (pool.device, pool.dma_dir, pool.offset, pool.max_len) == (
        eth0,
        "bidirectional",
        100,
        8092,
    )
    pool.close()
    assert pool.device is eth0
    # Without a sync, 0 is "all behind offset" as in C.
    with pagepool.PagePool(device=eth0, max_len=0) as pool:
        assert pool.max_len == 4096


# ---- Page.dma -----------------------------------------------------------------------------------


def test_the_dma_of_pages_and_pieces(eth0: pagepool.IommuDevice) -> None:
    pool = pagepool.PagePool(device=eth0)
    page = pool.alloc()
    mapping = {m.address: m for m in eth0.mappings}[page.address]
    assert (mapping.dma, mapping.length, mapping.direction) == (page.dma, 4096, "from_device")
    pieces = [pool.alloc_frag(100) for _ in range(3)]
    assert [p.dma - pieces[0].dma for p in pieces] == [0, 128, 256]
    assert pieces[2].dma - pieces[2].offset == pieces[0].dma - pieces[0].offset
    pieces[0].put()
    with pytest.raises(pagepool.PageGone):
        _ = pieces[0].dma
    pool.close()
    for it in (page, *pieces[1:]):
        with pytest.raises(pagepool.DeviceGone, match="was unmapped when its pool"):
            _ = it.dma
        it.put()
    with pagepool.PagePool() as plain, plain.alloc() as other:
        with pytest.raises(pagepool.NotSupported, match="without a device"):
            _ = other.dma
        with pytest.raises(pagepool.NotSupported, match="without a device"):
            plain.dma_sync_for_cpu(other)


@pytest.mark.parametrize("tracked", [True, False])
def test_an_address_of_0_is_one(tracked: bool) -> None:
    class FromZero(pagepool.Device):
        def map(self, address: int, length: int, direction: Direction) -> int:
            return 0

        def unmap(self, dma: int, length: int, direction: Direction) -> None:
            assert dma == 0

    pool = pagepool.PagePool(device=FromZero(), track_mappings=tracked, order=1)
    page = pool.alloc()
    assert page.dma == 0
    pool.close()
    if tracked:
        with pytest.raises(pagepool.DeviceGone, match="unmapped when its pool was closed"):
            _ = page.dma
    else:
        assert page.dma == 0
    page.put()


@pytest.mark.parametrize("piece", [False, True])
def test_no_page_says_why_none_was_mapped(piece: bool) -> None:
    eth0 = pagepool.Iommu(bits=16).attach("eth0")
    with pagepool.PagePool(device=eth0, order=4) as pool:
        with pytest.raises(pagepool.OutOfPages, match="could be mapped for device eth0") as e:
            _ = pool.alloc_frag(64) if piece else pool.alloc()
        assert isinstance(e.value.__cause__, pagepool.NoDescriptor)
        assert "address space of 16 bits is used up" in str(e.value.__cause__)


@pytest.mark.parametrize("how", ["alloc", "alloc_frag", "alloc_bulk"])
def test_a_refusal_that_nobody_hears_keeps_nothing(how: str) -> None:
    class Kept:
        pass

    device = Plain()
    device.refuse = {2}

    def allocate(pool: pagepool.PagePool) -> tuple[Any, weakref.ref[Kept]]:
        mine = Kept()
        if how == "alloc":
            return pool.alloc(), weakref.ref(mine)
        return getattr(pool, how)(64), weakref.ref(mine)

    with pagepool.PagePool(device=device) as pool:
        page, mine = allocate(pool)
        assert pool.dma_stats.map_errors == 1
        assert mine() is None
        page.put()


def test_the_old_rule_forgets_no_address(
    eth0: pagepool.IommuDevice, faults: list[pagepool.Fault]
) -> None:
    pool = pagepool.PagePool(device=eth0, track_mappings=False)
    page = pool.alloc()
    dma = page.dma
    pool.close()
    assert [m.dma for m in eth0.mappings] == [page.dma] == [dma]
    page.put()
    assert (eth0.mappings, faults) == ([], [])


# ---- dma_stats ----------------------------------------------------------------------------------


def test_what_every_road_counts(eth0: pagepool.IommuDevice) -> None:
    napi = pagepool.Napi()
    pool = pagepool.PagePool(
        device=eth0, dma_sync=True, offset=128, max_len=1000, pool_size=1, napi=napi
    )

    def counts(earlier: pagepool.DmaStats) -> tuple[int, int, int, int]:
        s = pool.dma_stats - earlier
        assert s.map_errors == s.unmaps_destroy == s.unmaps_skipped == s.syncs_skipped == 0
        return s.maps, s.unmaps, s.syncs, s.sync_bytes

    start = pool.dma_stats
    with napi:
        page = pool.alloc()
        assert counts(start) == (64, 0, 64, 64000)
        others = pool.alloc_bulk(63)
        for size, bytes_ in ((10, 10), (0, 0), (1000, 1000), (4096, 1000), (-1, 1000)):
            before = pool.dma_stats
            pool.put(page, dma_sync_size=size)  # direct, since in its napi
            assert counts(before) == (0, 0, size != 0, bytes_)
            page = pool.alloc()
        with pytest.raises(pagepool.InvalidParameter):
            pool.put(page, dma_sync_size=-2)
        before = pool.dma_stats
        pool.recycle_direct(page)
        assert counts(before) == (0, 0, 1, 1000)
        page = pool.alloc()
        before = pool.dma_stats
        view = page.view()[:4]
        page.put()  # it leaves: nothing to sync
        del view
        assert counts(before) == (0, 1, 0, 0)
    before = pool.dma_stats
    pool.put(others[0], dma_sync_size=7)  # the ring
    assert counts(before) == (0, 0, 1, 7)
    before = pool.dma_stats
    pool.put(others[1], dma_sync_size=7)  # that is full: synced in vain, and unmapped
    assert counts(before) == (0, 1, 1, 7)
    before = pool.dma_stats
    others.put()
    assert counts(before) == (0, 61, 61, 61000)
    pool.close()
    stats = pool.dma_stats
    assert (stats.maps, stats.unmaps + stats.unmaps_destroy) == (64, 64)


def test_pieces_are_synced_with_the_last(eth0: pagepool.IommuDevice) -> None:
    with pagepool.PagePool(device=eth0, dma_sync=True) as pool:
        pieces = [pool.alloc_frag(2048) for _ in range(3)]  # a page, and half of another
        before = pool.dma_stats
        pool.put(pieces[0], dma_sync_size=5)
        assert (pool.dma_stats - before).syncs == 0
        pool.put(pieces[1], dma_sync_size=6)
        assert ((pool.dma_stats - before).syncs, (pool.dma_stats - before).sync_bytes) == (1, 6)
        pieces[2].put()


def test_all_pieces_back_and_the_page_is_used_again(eth0: pagepool.IommuDevice) -> None:
    with pagepool.PagePool(device=eth0, dma_sync=True) as pool:
        pool.alloc_frag(4096).put()
        before = pool.dma_stats
        piece = pool.alloc_frag(4096)
        assert ((pool.dma_stats - before).syncs, (pool.dma_stats - before).sync_bytes) == (1, 4096)
        piece.put()


def test_dma_stats_of_a_pool_that_has_ended(eth0: pagepool.IommuDevice) -> None:
    pool = pagepool.PagePool(device=eth0, dma_sync=True)
    pages = [pool.alloc() for _ in range(3)]
    pool.close()
    open_ = pool.dma_stats
    assert (open_.maps, open_.unmaps, open_.unmaps_destroy) == (64, 61, 3)
    for page in pages:
        page.put()
    stats = pool.dma_stats
    assert stats - open_ == pagepool.DmaStats(0, 0, 0, 0, 3, 0, 0, 3)
    assert stats.maps == stats.unmaps + stats.unmaps_destroy
    with pytest.raises(TypeError):
        _ = stats - 1  # type: ignore[operator]
    with pytest.raises(AttributeError):
        stats.maps = 1  # type: ignore[misc]


# ---- dma_sync_for_cpu ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "size", "synced"),
    [
        (0, None, (256, 1536)),
        (0, 0, None),
        (0, 1, (256, 1)),
        (100, None, (356, 1436)),
        (100, 50, (356, 50)),
        (1535, None, (1791, 1)),
        (1536, None, None),
        (1000, 5000, (1256, 536)),
        (0xFFFFFFFF, 0xFFFFFFFF, None),
        (5, 0xFFFFFFFF, (261, 1531)),
    ],
)
def test_ranges_of_a_page(offset: int, size: int | None, synced: tuple[int, int] | None) -> None:
    device = ForCpu()
    with pagepool.PagePool(device=device, offset=256, max_len=1536) as pool:
        page = pool.alloc()
        pool.dma_sync_for_cpu(page, offset, size)
        assert device.take("for_cpu") == (
            [("for_cpu", page.address, *synced, "from_device")] if synced else []
        )
        page.put()


@pytest.mark.parametrize(
    ("offset", "size", "synced"),
    [
        (0, None, (1024, 500)),
        (0, 10, (1024, 10)),
        (100, None, (1124, 400)),
        (100, 1000, (1124, 400)),
        (500, None, None),
    ],
)
def test_ranges_of_a_piece(offset: int, size: int | None, synced: tuple[int, int] | None) -> None:
    device = ForCpu()
    with pagepool.PagePool(device=device) as pool:
        first, piece = pool.alloc_frag(1024), pool.alloc_frag(500)
        pool.dma_sync_for_cpu(piece, offset, size)
        assert device.take("for_cpu") == (
            [("for_cpu", first.address, *synced, "from_device")] if synced else []
        )
        pool.put_bulk([first, piece])


def test_a_piece_in_part_of_the_devices_part() -> None:
    device = ForCpu()
    with pagepool.PagePool(device=device, offset=100, max_len=1000) as pool:
        pieces = [pool.alloc_frag(64) for _ in range(30)]
        pool.dma_sync_for_cpu(pieces[0])  # before it
        pool.dma_sync_for_cpu(pieces[1])  # its first 28 bytes
        pool.dma_sync_for_cpu(pieces[17])  # its last 12
        pool.dma_sync_for_cpu(pieces[20])  # behind it
        assert [it[2:4] for it in device.take("for_cpu")] == [(100, 28), (1088, 12)]
        pool.put_bulk(pieces)


def test_dma_sync_for_cpu_that_is_refused(eth0: pagepool.IommuDevice) -> None:
    with pagepool.PagePool(device=eth0) as pool, pagepool.PagePool(device=eth0) as other:
        page = pool.alloc()
        with pytest.raises(pagepool.ForeignPage):
            other.dma_sync_for_cpu(page)
        for arguments in ((-1,), (0, -1), (1 << 32,), (0, 1 << 32)):
            with pytest.raises(pagepool.InvalidParameter):
                pool.dma_sync_for_cpu(page, *arguments)
        with pytest.raises(TypeError):
            pool.dma_sync_for_cpu(page, 1.5)  # type: ignore[arg-type]
        page.put()
        with pytest.raises(pagepool.PageGone):
            pool.dma_sync_for_cpu(page)


def test_nothing_is_synced_after_the_pool_was_closed() -> None:
    device = ForCpu()
    pool = pagepool.PagePool(device=device)
    page = pool.alloc()
    pool.close()
    device.take()
    pool.dma_sync_for_cpu(page)
    page.put()
    assert device.asked == []


# ---- the IOMMU ----------------------------------------------------------------------------------


def test_a_fault_of_each_kind(
    iommu: pagepool.Iommu, eth0: pagepool.IommuDevice, faults: list[pagepool.Fault]
) -> None:
    rx = pagepool.PagePool(device=eth0, order=1)
    page = rx.alloc()
    dma, at = page.dma, page.address
    gone = rx.alloc()
    was, was_at = gone.dma, gone.address
    view = gone.view()
    gone.put()
    del view
    far = 1 << 40

    def expect(use: Callable[[], object], error: type[Exception] | None, *fault: object) -> None:
        if error is None:
            use()
        else:
            with pytest.raises(error, match=r"iommu: eth0: "):
                use()
        told = faults.pop()
        assert faults == []
        assert told[:-1] == fault
        size = f"{told.op} of {told.length} bytes at {told.dma:#x} refused: "
        assert told.text.startswith(f"iommu: eth0: {size}")

    fault = pagepool.DeviceFault
    both: Direction = "from_device"
    expect(lambda: eth0.read(dma, 4), fault, "read", "direction", "eth0", dma, 4, at)
    expect(lambda: eth0.write(far, b"1"), fault, "write", "never mapped", "eth0", far, 1, None)
    expect(lambda: eth0.read(far, 1), fault, "read", "never mapped", "eth0", far, 1, None)
    expect(lambda: eth0.write(was, b"12"), fault, "write", "unmapped", "eth0", was, 2, was_at)
    end = dma + 8190
    expect(lambda: eth0.write(end, b"123"), fault, "write", "length", "eth0", end, 3, at + 8190)
    expect(
        lambda: eth0.sync_for_cpu(dma, 8000, 193, both),
        None,
        *("sync", "length", "eth0", dma + 8000, 193, at + 8000),
    )
    expect(
        lambda: eth0.sync_for_device(was, 1, 2, both),
        None,
        *("sync", "unmapped", "eth0", was + 1, 2, was_at + 1),
    )
    expect(lambda: eth0.unmap(dma, 4096, both), None, "unmap", "length", "eth0", dma, 4096, at)
    expect(
        lambda: eth0.unmap(dma + 4096, 4096, both),
        None,
        *("unmap", "length", "eth0", dma + 4096, 4096, at + 4096),
    )
    expect(lambda: eth0.unmap(far, 1, both), None, "unmap", "never mapped", "eth0", far, 1, None)
    assert eth0.unbind() == 1
    why = ("device gone", "eth0", dma, 4, at)
    expect(lambda: eth0.write(dma, b"1234"), pagepool.DeviceGone, "write", *why)
    expect(lambda: eth0.read(dma, 4), pagepool.DeviceGone, "read", *why)
    with pytest.raises(pagepool.OutOfPages, match="none could be mapped for device eth0") as e:
        rx.alloc()
    assert isinstance(e.value.__cause__, pagepool.DeviceGone)
    told = faults.pop()
    assert (told.op, told.why, told.length) == ("map", "device gone", 8192)
    rx.close()  # unmaps what is out
    told = faults.pop()
    assert (told.op, told.why, told.dma, told.address) == ("unmap", "device gone", dma, at)
    page.put()
    assert faults == []
    assert iommu.fault_count == 14
    assert len(iommu.faults) == 14


def test_what_may_be_done_is_done(eth0: pagepool.IommuDevice, faults: list[Any]) -> None:
    with pagepool.PagePool(device=eth0, dma_dir="bidirectional") as pool:
        page = pool.alloc()
        eth0.write(page.dma + 10, memoryview(b"hello"))
        eth0.write(page.dma + 4095, b"")
        assert bytes(page.view()[10:15]) == b"hello"
        assert eth0.read(page.dma + 9, 6)[1:] == b"hello"
        assert eth0.read(page.dma, 0) == b""
        # From the page that it goes to.
        page.view()[:5] = b"abcde"
        eth0.write(page.dma + 1, page.view()[:5])
        assert bytes(page.view()[:6]) == b"aabcde"
        eth0.sync_for_cpu(page.dma, 0, 4096, "from_device")
        eth0.sync_for_device(page.dma, 4095, 1, "from_device")
        page.put()
    assert faults == []


def test_arguments_by_hand(eth0: pagepool.IommuDevice) -> None:
    for use in (
        lambda: eth0.unmap(0, 1, "up"),  # type: ignore[arg-type]
        lambda: eth0.unmap(-1, 1, "from_device"),
        lambda: eth0.sync_for_cpu(0, -1, 1, "from_device"),
        lambda: eth0.sync_for_device(0, 0, 1 << 64, "from_device"),
        lambda: eth0.sync_for_device(0, 0, 1, "down"),  # type: ignore[arg-type]
        lambda: eth0.read(0, (1 << 32) + 1),
        lambda: eth0.write(1 << 64, b""),
    ):
        with pytest.raises(pagepool.InvalidParameter):
            use()
    for use in (
        lambda: eth0.write(0, "text"),  # type: ignore[arg-type]
        lambda: eth0.write(1.5, b"x"),  # type: ignore[arg-type]
        lambda: eth0.read("x", 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            use()
    with pytest.raises(BufferError):
        eth0.write(0, memoryview(b"12345678")[::2])
    with pytest.raises(pagepool.NotSupported, match="mapped by pools only"):
        eth0.map(0, 4096, "from_device")


def test_what_was_unmapped_by_hand_is_reported_when_the_pool_does(
    eth0: pagepool.IommuDevice, faults: list[pagepool.Fault]
) -> None:
    with pagepool.PagePool(device=eth0, order=1) as pool:
        page = pool.alloc()
        eth0.unmap(page.dma, 8192, "from_device")
        assert (eth0.mappings, faults) == ([], [])
        page.put()
    assert [(f.op, f.why) for f in faults] == [("unmap", "unmapped")]


def test_the_newest_1000_faults_are_kept(eth0: pagepool.IommuDevice, iommu: pagepool.Iommu) -> None:
    for i in range(1500):
        eth0.unmap(i << 20, 1, "from_device")
    assert iommu.fault_count == 1500
    assert [f.dma >> 20 for f in iommu.faults] == list(range(500, 1500))
    iommu.faults.clear()  # a copy
    assert len(iommu.faults) == 1000
    assert repr(iommu) == "<pagepool.Iommu, 1500 faults>"


def test_on_fault_that_raises(unraisable: list[BaseException]) -> None:
    def on_fault(fault: pagepool.Fault) -> None:
        raise LookupError(fault.op)

    iommu = pagepool.Iommu(on_fault=on_fault)
    device = iommu.attach("eth1")
    with pytest.raises(pagepool.DeviceFault, match="write of 1 bytes at 0x5000 refused"):
        device.write(0x5000, b"x")
    device.unmap(0x5000, 1, "from_device")
    assert [(type(e), e.args) for e in unraisable] == [
        (LookupError, ("write",)),
        (LookupError, ("unmap",)),
    ]
    assert iommu.fault_count == len(iommu.faults) == 2


def test_without_on_fault_the_logger_is_told(caplog: pytest.LogCaptureFixture) -> None:
    device = pagepool.Iommu().attach("eth1")
    with caplog.at_level(logging.WARNING, "pagepool"):
        device.unmap(0x5000, 1, "from_device")
    assert [(r.name, r.levelname) for r in caplog.records] == [("pagepool", "WARNING")]
    assert caplog.messages == [
        "iommu: eth1: unmap of 1 bytes at 0x5000 refused: nothing known was ever mapped there"
    ]


@pytest.mark.parametrize("bits", [1, 15, 57, 1 << 31])
def test_bits_that_no_iommu_has(bits: int) -> None:
    with pytest.raises(pagepool.InvalidParameter, match="16 to 56"):
        pagepool.Iommu(bits=bits)


def test_arguments_of_an_iommu() -> None:
    with pytest.raises(pagepool.InvalidParameter):
        pagepool.Iommu(bits=-1)
    with pytest.raises(TypeError):
        pagepool.Iommu(bits="48")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        pagepool.Iommu(on_fault=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pagepool.Iommu().attach(None)  # type: ignore[arg-type]
    for bits in (0, 16, 56):
        pagepool.Iommu(bits=bits).attach("x")


def test_an_address_space_that_is_used_up(faults: list[pagepool.Fault]) -> None:
    device = pagepool.Iommu(bits=16, on_fault=faults.append).attach("small")
    arena = pagepool.Arena()
    with pagepool.PagePool(device=device, provider=arena) as pool:
        batch = pool.alloc_bulk(100)  # addresses 4096 to 65535
        assert len(batch) == 15
        assert (pool.dma_stats.map_errors > 0, arena.info.out) == (True, 15 * 4096)
        with pytest.raises(pagepool.OutOfPages, match="for device small, 15 pages") as e:
            pool.alloc()
        assert isinstance(e.value.__cause__, pagepool.NoDescriptor)
        assert "address space of 16 bits is used up" in str(e.value.__cause__)
        assert sorted(m.dma for m in device.mappings) == list(range(4096, 65536, 4096))
        batch.put()
    assert faults == []  # that is no fault
    assert device.mappings == []


def test_two_devices_are_apart(iommu: pagepool.Iommu, faults: list[pagepool.Fault]) -> None:
    one, two = iommu.attach("one"), iommu.attach("two")
    with (
        pagepool.PagePool(device=one, order=1) as first,
        pagepool.PagePool(device=two, order=1) as second,
    ):
        a, b = first.alloc(), second.alloc()
        assert a.dma == b.dma
        one.write(a.dma, b"one")
        two.write(b.dma, b"two")
        assert (bytes(a.view()[:3]), bytes(b.view()[:3])) == (b"one", b"two")
        assert [m.address for m in two.mappings] == [b.address]
        a.put()
        assert one.unbind() == 1
        with pytest.raises(pagepool.DeviceGone):
            one.write(4096, b"x")
        two.write(b.dma, b"2")
        b.put()
    assert {f.device for f in faults} == {"one"}
    assert (one.bound, two.bound) == (False, True)
    assert repr(one) == "<pagepool.IommuDevice one, unbound>"


def test_unbind_twice(eth0: pagepool.IommuDevice) -> None:
    assert (eth0.bound, eth0.unbind(), eth0.bound) == (True, 0, False)
    with pytest.raises(pagepool.DeviceGone, match="unbound already"):
        eth0.unbind()


@pytest.mark.parametrize(
    ("order", "pages"), [(0, 64), (0, 640), (1, 64), (1, 65), (5, 129), (10, 3)]
)
def test_the_listing_of_many_mappings(order: int, pages: int, eth0: pagepool.IommuDevice) -> None:
    with pagepool.PagePool(device=eth0, order=order) as pool:
        held = [pool.alloc() for _ in range(pages)]
        mappings = eth0.mappings
        assert [m.dma for m in mappings] == sorted(p.dma for p in held)
        assert {(m.dma, m.address) for m in mappings} == {(p.dma, p.address) for p in held}
        assert {m.length for m in mappings} == {4096 << order}
        assert all(m.dma % m.length == 0 for m in mappings)
        pool.put_bulk(held)
    assert eth0.mappings == []


# ---- NO_DEVICE ----------------------------------------------------------------------------------


def test_no_device() -> None:
    none = pagepool.NO_DEVICE
    assert (none.name, none.identity) == ("none", True)
    with pagepool.PagePool(device=none, dma_sync=True) as pool, pool.alloc() as page:
        assert page.dma == page.address
        pool.dma_sync_for_cpu(page)
        assert (pool.dma_stats.maps, pool.dma_stats.syncs) == (64, 0)
    for use in (lambda: none.write(0, b"x"), lambda: none.read(0, 1)):
        with pytest.raises(pagepool.NotSupported):
            use()
    assert none.map(0x5000, 4096, "from_device") == 0x5000
    none.unmap(0x5000, 4096, "from_device")
    with pytest.raises(pagepool.InvalidParameter, match="direction is 'up'"):
        none.map(0x5000, 4096, "up")  # type: ignore[arg-type]


# ---- unbind -------------------------------------------------------------------------------------


def test_unbind_after_close_leaves_nothing(
    eth0: pagepool.IommuDevice, faults: list[pagepool.Fault]
) -> None:
    pool = pagepool.PagePool(device=eth0, dma_sync=True)
    pages = [pool.alloc() for _ in range(100)]
    pool.close()
    assert pool.dma_stats.unmaps_destroy == 100
    assert (eth0.mappings, eth0.unbind()) == ([], 0)
    with pytest.raises(pagepool.DeviceGone):
        eth0.write(4096, b"late")
    faults.clear()
    for page in pages:
        page.put()
    assert faults == []
    assert (pool.dma_stats.unmaps_skipped, pool.dma_stats.syncs_skipped) == (100, 100)
    assert pool.inflight == 0


def test_unbind_with_the_old_rule_is_reported(
    eth0: pagepool.IommuDevice, faults: list[pagepool.Fault]
) -> None:
    pool = pagepool.PagePool(device=eth0, dma_sync=True, track_mappings=False)
    page = pool.alloc()
    dma, at = page.dma, page.address
    pool.close()
    assert eth0.unbind() == 1
    page.put()
    assert [(f.op, f.why, f.dma, f.address) for f in faults] == [
        ("sync", "device gone", dma, at),
        ("unmap", "device gone", dma, at),
    ]
    stats = pool.dma_stats
    assert (stats.maps, stats.unmaps, stats.unmaps_destroy, stats.unmaps_skipped) == (64, 64, 0, 0)


def test_a_device_goes_with_its_last_pool() -> None:
    iommu = pagepool.Iommu(on_fault=lambda fault: None)
    pool = pagepool.PagePool(device=iommu.attach("eth1"))
    page = pool.alloc()
    del iommu
    gc.collect()
    assert pool.device is not None
    assert pool.device.name == "eth1"
    del pool
    gc.collect()
    page.put()


# ---- NIC ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["iommu", "none", "nothing"])
def test_frames_come_in_order(device: str, eth0: pagepool.IommuDevice) -> None:
    through = {"iommu": eth0, "none": pagepool.NO_DEVICE, "nothing": None}[device]
    nic = pagepool.Nic(through, slots=4)
    assert "0 pages posted" in repr(nic)
    with pagepool.PagePool(device=through, offset=64, max_len=1500) as pool:
        pages = [pool.alloc() for _ in range(4)]
        for page in pages:
            nic.post(page)
        extra = pool.alloc()
        with pytest.raises(pagepool.NoDescriptor, match="all 4 descriptors"):
            nic.post(extra)
        assert nic.receive(b"first")
        assert nic.receive(bytearray(1500))
        assert not nic.receive(bytes(1501))  # too long: the page stays posted
        with pytest.raises(pagepool.NoDescriptor):
            nic.post(extra)  # those that wait to be polled count
        assert nic.poll() == (pages[0], 5)
        assert bytes(pages[0].view()[63:70])[1:6] == b"first"
        nic.post(extra)
        assert nic.poll() == (pages[1], 1500)
        assert nic.poll() is None
        assert (nic.take(), nic.take()) == (pages[2], pages[3])
        assert nic.receive(b"")
        assert nic.poll() == (extra, 0)
        assert not nic.receive(b"nobody is there")
        assert (nic.dropped, nic.take(), nic.poll()) == (2, None, None)
        pool.put_bulk([*pages, extra])


def test_a_write_that_is_refused_is_told_with_the_page(
    eth0: pagepool.IommuDevice, faults: list[pagepool.Fault]
) -> None:
    nic = pagepool.Nic(eth0)
    pool = pagepool.PagePool(device=eth0)
    page, other = pool.alloc(), pool.alloc()
    nic.post(page)
    nic.post(other)
    pool.close()
    assert not nic.receive(b"late")
    assert nic.poll() == (page, -1)
    eth0.unbind()
    assert not nic.receive(b"later")
    assert nic.poll() == (other, -1)
    assert [(f.op, f.why) for f in faults] == [("write", "unmapped"), ("write", "device gone")]
    assert nic.dropped == 2
    pool.put_bulk([page, other])


@pytest.mark.parametrize("with_device", [True, False])
def test_pages_that_cannot_be_posted(with_device: bool, eth0: pagepool.IommuDevice) -> None:
    nic = pagepool.Nic(eth0 if with_device else None)
    pool = pagepool.PagePool(device=eth0)
    page, out = pool.alloc(), pool.alloc()
    page.put()
    with pytest.raises(pagepool.PageGone):
        nic.post(page)
    for odd in (None, b"", pool):
        with pytest.raises(TypeError):
            nic.post(odd)  # type: ignore[arg-type]
    pool.close()
    if with_device:
        with pytest.raises(pagepool.DeviceGone):
            nic.post(out)
        with (
            pagepool.PagePool() as plain,
            plain.alloc() as other,
            pytest.raises(pagepool.NotSupported),
        ):
            nic.post(other)
    else:
        # Any address would do, but a page that was mapped is no device's any more.
        with pytest.raises(pagepool.DeviceGone):
            nic.post(out)
    out.put()
    assert nic.take() is None


def test_a_page_that_is_put_while_it_is_posted(eth0: pagepool.IommuDevice) -> None:
    plain = pagepool.Nic()
    with pagepool.PagePool() as pool:
        page = pool.alloc()
        plain.post(page)
        page.put()
        assert not plain.receive(b"to nobody")
        assert plain.poll() == (page, -1)
    # A device writes where it was told to: as long as it is mapped.
    nic = pagepool.Nic(eth0)
    pool = pagepool.PagePool(device=eth0, checked=False)
    page = pool.alloc()
    nic.post(page)
    pool.close()
    page.put()
    assert not nic.receive(b"to nobody")
    assert nic.poll() == (page, -1)


@pytest.mark.parametrize("through_iommu", [True, False])
def test_pieces_get_frames(through_iommu: bool, eth0: pagepool.IommuDevice) -> None:
    device = eth0 if through_iommu else None
    nic = pagepool.Nic(device)
    with pagepool.PagePool(device=device) as pool:
        pieces = [pool.alloc_frag(128) for _ in range(3)]
        for piece in pieces:
            piece.view()[:] = bytes(128)
            nic.post(piece)
        assert not nic.receive(bytes(129))
        for i in range(3):
            assert nic.receive(bytes([i + 1]) * (128 if i != 1 else 5))
        got = [nic.poll() for _ in pieces]
        assert got == [(pieces[0], 128), (pieces[1], 5), (pieces[2], 128)]
        assert [set(p.view()) for p in pieces] == [{1}, {0, 2}, {3}]
        pool.put_bulk(pieces)


def test_a_nic_over_a_device_of_ones_own() -> None:
    class Writes(Plain):
        def write(self, dma: int, data: Any) -> None:
            if bytes(data) == b"break":
                raise KeyError("broken")
            if bytes(data) == b"fault":
                raise pagepool.DeviceFault("no")
            self.asked.append(("write", dma, bytes(data)))

    device = Writes()
    nic = pagepool.Nic(device)
    with pagepool.PagePool(device=device, order=1, offset=16) as pool:
        pages = [pool.alloc() for _ in range(3)]
        for page in pages:
            nic.post(page)
        assert nic.receive(b"frame")
        assert device.take("write") == [("write", pages[0].dma + 16, b"frame")]
        assert not nic.receive(b"fault")
        with pytest.raises(KeyError):
            nic.receive(b"break")
        assert [nic.poll() for _ in pages] == [(pages[0], 5), (pages[1], -1), (pages[2], -1)]
        pool.put_bulk(pages)


@pytest.mark.parametrize("slots", [3, -4, 65537, 1 << 17])
def test_slots_that_no_nic_has(slots: int) -> None:
    with pytest.raises(pagepool.InvalidParameter, match="power of two"):
        pagepool.Nic(slots=slots)


def test_arguments_of_a_nic() -> None:
    for odd in (3, "eth0", pagepool.Iommu()):
        with pytest.raises(TypeError):
            pagepool.Nic(odd)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pagepool.Nic(slots=2.0)  # type: ignore[arg-type]
    nic = pagepool.Nic(slots=0)
    with pagepool.PagePool() as pool:
        pages = [pool.alloc() for _ in range(257)]
        for page in pages[:256]:
            nic.post(page)
        with pytest.raises(pagepool.NoDescriptor):
            nic.post(pages[256])
        assert nic.receive(memoryview(b"abcdefgh").cast("I"))  # bytes, whatever they are
        with pytest.raises(TypeError):
            nic.receive("text")  # type: ignore[arg-type]
        assert nic.poll() == (pages[0], 8)
        pool.put_bulk(pages)


def test_a_nic_that_goes_gives_its_pages_back() -> None:
    nic = pagepool.Nic()
    pool = pagepool.PagePool()
    nic.post(pool.alloc())
    with pytest.warns(ResourceWarning, match="was dropped without a put"):
        del nic
    assert pool.stats.recycle_ring == 1
    pool.close()
    assert pool.inflight == 0


# ---- fork, copies -------------------------------------------------------------------------------


def test_the_child_of_a_fork_is_told(
    eth0: pagepool.IommuDevice,
    iommu: pagepool.Iommu,
    in_child: Callable[[Callable[[], object]], None],
) -> None:
    own = Both()
    pool = pagepool.PagePool(device=eth0)
    mine = pagepool.PagePool(device=own, dma_sync=True)
    page, other = pool.alloc(), mine.alloc()
    nic, over_none = pagepool.Nic(eth0), pagepool.Nic()
    over_none.post(page)
    asked = list(own.asked)

    def child() -> None:
        for use in (
            lambda: pagepool.PagePool(device=eth0),
            lambda: pagepool.PagePool(device=own),
            lambda: iommu.attach("x"),
            lambda: iommu.fault_count,
            eth0.unbind,
            lambda: eth0.mappings,
            lambda: eth0.write(page_dma, b"x"),
            lambda: eth0.read(page_dma, 1),
            lambda: eth0.unmap(page_dma, 4096, "from_device"),
            lambda: eth0.sync_for_cpu(page_dma, 0, 1, "from_device"),
            lambda: eth0.sync_for_device(page_dma, 0, 1, "from_device"),
            lambda: page.dma,
            lambda: pool.dma_stats,
            lambda: pool.dma_sync_for_cpu(page),
            lambda: nic.post(page),
            mine.close,
            other.put,
        ):
            with pytest.raises(pagepool.Forked, match="belongs to the parent process"):
                use()
        assert not over_none.receive(b"x")
        assert "parent" in repr(iommu)
        # What the child makes itself works, and so does NO_DEVICE.
        device = pagepool.Iommu().attach("child")
        for made in (device, pagepool.NO_DEVICE, Plain()):
            with pagepool.PagePool(device=made) as fresh:
                fresh.alloc().put()
        things.clear()
        gc.collect()

    page_dma = page.dma
    things: list[object] = [pool, mine, page, other, nic, over_none]
    in_child(child)
    assert own.asked == asked
    assert over_none.receive(b"parent")
    pool.put(page)
    mine.put(other)
    for it in (pool, mine):
        it.close()
        assert it.inflight == 0


def test_no_device_is_copied_or_pickled(eth0: pagepool.IommuDevice, iommu: pagepool.Iommu) -> None:
    for thing in (eth0, iommu, pagepool.NO_DEVICE, Plain()):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                way(thing)


def test_the_types_are_closed() -> None:
    for type_ in (_core.Iommu, _core.IommuDevice, type(pagepool.NO_DEVICE)):
        with pytest.raises(TypeError):
            type("Sub", (type_,), {})
        with pytest.raises(TypeError):
            object.__new__(type_)
    with pytest.raises(TypeError):
        object.__new__(Plain)
