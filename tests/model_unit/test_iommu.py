# SPDX-License-Identifier: BSD-2-Clause
"""The software IOMMU: addresses, what it refuses, what it remembers, and what it reports."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import pytest

from model_unit.devices import Direction
from pagepool import model as pagepool

PAGE = 4096
Call = Callable[[], object]


def make(bits: int = 48) -> tuple[pagepool.Iommu, pagepool.IommuDevice]:
    iommu = pagepool.Iommu(bits=bits, on_fault=lambda fault: None)
    return iommu, iommu.attach("eth0")


def memory(pages: int = 1) -> memoryview:
    return memoryview(bytearray(pages * PAGE))


def by_hand(
    device: pagepool.IommuDevice, memory: memoryview, direction: Direction, address: int = 0x7000
) -> int:
    """As a pool maps a page."""
    return device._map(memory, address, direction)


def refused(iommu: pagepool.Iommu, call: Call) -> pagepool.Fault:
    """The one fault that the call gives."""
    before = iommu.fault_count
    try:
        call()
    except (pagepool.DeviceFault, pagepool.DeviceGone) as e:
        assert str(e) == iommu.faults[-1].text
    assert iommu.fault_count == before + 1
    return iommu.faults[-1]


def test_addresses_go_upwards_each_a_multiple_of_its_rounded_size() -> None:
    _, device = make()
    assert by_hand(device, memory(), "from_device") == 0x1000
    assert by_hand(device, memory(3), "from_device") == 0x4000  # takes four pages
    assert by_hand(device, memory(), "from_device") == 0x8000
    assert by_hand(device, memoryview(bytearray(100)), "to_device") == 0x9000
    assert by_hand(device, memory(4), "bidirectional") == 0xC000
    assert [(m.dma, m.length, m.direction) for m in device.mappings] == [
        (0x1000, PAGE, "from_device"),
        (0x4000, 3 * PAGE, "from_device"),
        (0x8000, PAGE, "from_device"),
        (0x9000, 100, "to_device"),
        (0xC000, 4 * PAGE, "bidirectional"),
    ]
    device.unmap(0x1000, PAGE, "from_device")
    assert by_hand(device, memory(), "from_device") == 0x10000  # not what was freed


def test_the_end_of_the_space_starts_over_and_skips_what_is_mapped() -> None:
    iommu, device = make(bits=16)  # 16 pages, of which the first is none
    dmas = [by_hand(device, memory(), "from_device") for _ in range(15)]
    assert dmas == [n << 12 for n in range(1, 16)]
    with pytest.raises(pagepool.NoDescriptor, match="address space of 16 bits is used up"):
        by_hand(device, memory(), "from_device")
    assert iommu.fault_count == 0
    for dma in (0x3000, 0x6000, 0x7000):
        device.unmap(dma, PAGE, "from_device")
    assert by_hand(device, memory(2), "from_device") == 0x6000
    assert by_hand(device, memory(), "from_device") == 0x3000
    with pytest.raises(pagepool.NoDescriptor):
        by_hand(device, memory(), "from_device")
    with pytest.raises(pagepool.NoDescriptor):
        by_hand(device, memory(32), "from_device")
    # A mapping keeps the pages that its size was rounded up to.
    iommu, device = make(bits=16)
    assert by_hand(device, memory(5), "from_device") == 0x8000
    got = [by_hand(device, memory(), "from_device") for _ in range(7)]
    assert got == [n << 12 for n in range(1, 8)]
    with pytest.raises(pagepool.NoDescriptor):
        by_hand(device, memory(), "from_device")


def test_the_device_writes_and_reads_inside_of_a_mapping() -> None:
    _, device = make()
    mine = memory(2)
    dma = by_hand(device, mine, "bidirectional")
    device.write(dma + 5000, b"hello")
    assert bytes(mine[5000:5005]) == b"hello"
    assert device.read(dma + 5000, 5) == b"hello"
    small = by_hand(device, memoryview(bytearray(100)), "from_device")
    device.write(small + 100, b"")  # nothing, at its end
    with pytest.raises(pagepool.DeviceFault, match="beyond the mapping"):
        device.write(small + 101, b"")
    typed = memoryview(bytearray(16)).cast("I")
    device.write(by_hand(device, typed, "from_device"), b"\1\0\0\0")
    assert typed[0] == 1


def test_what_is_refused_and_why() -> None:
    iommu, device = make()
    into, out = memory(), memory()
    dma = by_hand(device, into, "from_device")
    other = by_hand(device, out, "to_device")  # right behind it
    address, behind = (mapping.address for mapping in device.mappings)
    assert other == dma + PAGE

    def unmap(dma: int, length: int) -> None:
        device.unmap(dma, length, "from_device")

    def sync(dma: int, offset: int, length: int) -> None:
        device.sync_for_cpu(dma, offset, length, "from_device")

    at_end = dma + PAGE - 2
    most = 2**64 - 1
    # What is called, and of the fault: op, why, dma, length, address.
    cases: list[tuple[Call, tuple[str, str, int, int, int | None]]] = [
        (lambda: device.write(other, b"x"), ("write", "direction", other, 1, behind)),
        (lambda: device.read(dma, 4), ("read", "direction", dma, 4, address)),
        (lambda: device.write(at_end, b"1234"), ("write", "length", at_end, 4, address + 4094)),
        (lambda: device.write(8, b"x"), ("write", "never mapped", 8, 1, None)),
        (lambda: device.read(1 << 60, 8), ("read", "never mapped", 1 << 60, 8, None)),
        (lambda: device.read(most, 1 << 32), ("read", "never mapped", most, 1 << 32, None)),
        (lambda: unmap(dma, 100), ("unmap", "length", dma, 100, address)),
        (lambda: unmap(dma + 1, 4095), ("unmap", "length", dma + 1, 4095, address + 1)),
        (lambda: unmap(64 << 12, 1), ("unmap", "never mapped", 64 << 12, 1, None)),
        (lambda: sync(dma, 1, PAGE), ("sync", "length", dma + 1, PAGE, address + 1)),
        (lambda: sync(dma, PAGE, 1), ("sync", "length", dma + PAGE, 1, None)),
        (lambda: sync(dma, most, most), ("sync", "length", dma - 1, most, None)),
    ]
    for call, (op, why, where, length, what) in cases:
        assert refused(iommu, call)[:6] == (op, why, "eth0", where, length, what)
    assert bytes(into) + bytes(out) == bytes(2 * PAGE)
    assert len(device.mappings) == 2
    device.unmap(dma, PAGE, "from_device")
    for call, op in (
        (lambda: device.write(dma + 8, b"x"), "write"),
        (lambda: device.sync_for_cpu(dma, 8, 1, "from_device"), "sync"),
    ):
        fault = refused(iommu, call)
        assert fault[:6] == (op, "unmapped", "eth0", dma + 8, 1, address + 8)
    assert refused(iommu, lambda: device.unmap(dma, PAGE, "from_device")).why == "unmapped"


def test_the_lines_of_its_reports() -> None:
    iommu, device = make()
    dma = by_hand(device, memory(), "from_device")
    address = device.mappings[0].address
    lines = [
        refused(iommu, call).text
        for call in (
            lambda: device.read(dma, 4),
            lambda: device.write(dma + 4095, b"xy"),
            lambda: device.unmap(dma, 8, "from_device"),
            lambda: device.write(64, b"x"),
        )
    ]
    device.unmap(dma, PAGE, "from_device")
    lines.append(refused(iommu, lambda: device.write(dma, b"xy")).text)
    device.unbind()
    lines.append(refused(iommu, lambda: device.unmap(dma, PAGE, "from_device")).text)
    mine = memory()
    fault = refused(iommu, lambda: by_hand(device, mine, "from_device"))
    assert fault[:5] == ("map", "device gone", "eth0", 0, PAGE)
    assert lines == [
        "iommu: eth0: read of 4 bytes at 0x1000 refused: the mapping is for the other direction; "
        f"it is memory {address:#x}",
        "iommu: eth0: write of 2 bytes at 0x1fff refused: it goes beyond the mapping; "
        f"it is memory {address + 4095:#x}",
        "iommu: eth0: unmap of 8 bytes at 0x1000 refused: that is not all of the mapping; "
        f"it is memory {address:#x}",
        "iommu: eth0: write of 1 bytes at 0x40 refused: nothing known was ever mapped there",
        "iommu: eth0: write of 2 bytes at 0x1000 refused: it was unmapped; "
        f"it was memory {address:#x}",
        "iommu: eth0: unmap of 4096 bytes at 0x1000 refused: the device is gone; "
        f"it was memory {address:#x}",
    ]
    assert fault.text == (
        "iommu: eth0: map of 4096 bytes refused: the device is gone; "
        f"it is memory {fault.address:#x}"
    )


def test_an_unbound_device_lets_nothing_through() -> None:
    iommu, device = make()
    other = iommu.attach("eth1")
    mine = memory()
    dma = by_hand(device, mine, "bidirectional")
    by_hand(device, memory(3), "bidirectional")
    assert by_hand(other, mine, "bidirectional") == dma  # an address space of its own
    assert device.bound
    assert device.unbind() == 2
    assert not device.bound
    assert device.mappings == []
    for call, error in (
        (lambda: device.write(dma, b"x"), pagepool.DeviceGone),
        (lambda: device.read(dma, 1), pagepool.DeviceGone),
        (lambda: by_hand(device, mine, "from_device"), pagepool.DeviceGone),
        (lambda: device.unmap(dma, PAGE, "bidirectional"), None),
        (lambda: device.sync_for_cpu(dma, 0, 1, "bidirectional"), None),
    ):
        fault = refused(iommu, call)
        assert (fault.why, fault.address) == ("device gone", other.mappings[0].address)
        if error:
            with pytest.raises(error):
                call()
    with pytest.raises(pagepool.DeviceGone, match="eth0 was unbound already"):
        device.unbind()
    assert bytes(mine) == bytes(PAGE)
    other.write(dma, b"x")


def test_what_was_mapped_is_remembered_but_not_for_ever() -> None:
    iommu, device = make()
    leaf = 512 * PAGE
    for _ in range(66):  # one mapping fills one leaf of the page table, the first is left empty
        dma = by_hand(device, memory(512), "from_device")
        device.unmap(dma, leaf, "from_device")
    # The cursor has left all 66, and 64 of them are kept.
    whys = [
        refused(iommu, lambda n=n: device.read(n * leaf, 1)).why  # type: ignore[misc]
        for n in range(1, 68)
    ]
    assert whys == ["never mapped"] * 2 + ["unmapped"] * 64 + ["never mapped"]
    # A leaf with something mapped in it is not forgotten, nor one where the cursor is.
    iommu, device = make()
    by_hand(device, memory(), "from_device")
    kept = by_hand(device, memory(), "from_device")
    device.unmap(kept, PAGE, "from_device")
    for _ in range(70):
        device.unmap(by_hand(device, memory(512), "from_device"), leaf, "from_device")
    assert refused(iommu, lambda: device.read(kept, 1)).why == "unmapped"
    device.unmap(0x1000, PAGE, "from_device")
    assert len(device._table.leaves) == 64
    # What a driver left behind is remembered whole.
    iommu, device = make()
    dmas = [by_hand(device, memory(512), "from_device") for _ in range(70)]
    device.unbind()
    faults = [refused(iommu, lambda d=d: device.unmap(d, leaf, "from_device")) for d in dmas]  # type: ignore[misc]
    assert all(fault.address is not None for fault in faults)


def test_faults_are_told_and_the_newest_kept(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[pagepool.Fault] = []
    shown: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: shown.append(str(args.exc_value)))

    def hear(fault: pagepool.Fault) -> None:
        told.append(fault)
        raise RuntimeError("deaf")

    iommu = pagepool.Iommu(on_fault=hear)
    device = iommu.attach("eth0")
    for n in range(1200):
        with pytest.raises(pagepool.DeviceFault):
            device.read(n, 1)
    assert iommu.fault_count == len(told) == 1200
    assert iommu.faults == told[-1000:]
    assert shown == ["deaf"] * 1200
    iommu.faults.clear()
    assert len(iommu.faults) == 1000

    with caplog.at_level(logging.WARNING, "pagepool"), pytest.raises(pagepool.DeviceFault):
        pagepool.Iommu().attach("eth1").read(0, 1)
    assert caplog.messages == [
        "iommu: eth1: read of 1 bytes at 0x0 refused: nothing known was ever mapped there"
    ]


def test_mapped_memory_is_kept_until_it_is_unmapped() -> None:
    _, device = make()
    buffer = bytearray(PAGE)
    dma = by_hand(device, memoryview(buffer), "from_device")
    with pytest.raises(BufferError):
        buffer.append(0)
    device.unmap(dma, PAGE, "from_device")
    buffer.append(0)
    by_hand(device, memoryview(buffer), "from_device")
    device.unbind()
    buffer.append(0)


def test_parameters_that_are_refused() -> None:
    for bits in (15, 57, -1):
        with pytest.raises(pagepool.InvalidParameter):
            pagepool.Iommu(bits=bits)
    with pytest.raises(TypeError, match="callable"):
        pagepool.Iommu(on_fault=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="come from an IOMMU"):
        pagepool.IommuDevice()
    iommu, device = make()
    with pytest.raises(TypeError):
        iommu.attach(None)  # type: ignore[arg-type]
    with pytest.raises(pagepool.InvalidParameter, match="no bytes"):
        by_hand(device, memoryview(bytearray()), "from_device")
    with pytest.raises(pagepool.InvalidParameter, match="direction is 'up'"):
        by_hand(device, memory(), "up")  # type: ignore[arg-type]
    for dma, length in ((-1, 1), (1 << 64, 1), (0, -1)):
        with pytest.raises(pagepool.InvalidParameter):
            device.read(dma, length)
    assert iommu.fault_count == 0


def test_a_pool_over_it() -> None:
    iommu, device = make()
    with pagepool.PagePool(device=device, dma_sync=True, order=1) as pool, pool.alloc() as page:
        assert [(m.dma, m.address, m.length) for m in device.mappings] == [
            (page.dma, page.address, 2 * PAGE)
        ]
        device.write(page.dma + 100, b"frame")
        assert bytes(page.view()[100:105]) == b"frame"
        with pytest.raises(pagepool.DeviceFault):
            device.read(page.dma, 1)  # it is mapped from the device only
    assert device.mappings == []
    assert iommu.fault_count == 1


@pytest.mark.parametrize("tracking", [True, False])
def test_pages_that_come_back_after_the_driver_is_gone(tracking: bool) -> None:
    iommu, device = make()
    pool = pagepool.PagePool(device=device, dma_sync=True, track_mappings=tracking)
    page, other = pool.alloc(), pool.alloc()
    addresses = [page.address, other.address]
    pool.close()
    assert device.unbind() == (0 if tracking else 2)
    page.put()
    other.put()
    assert pool.inflight == 0
    faults = [(fault.op, fault.why, fault.address) for fault in iommu.faults]
    assert faults == (
        []
        if tracking
        else [(op, "device gone", address) for address in addresses for op in ("sync", "unmap")]
    )


def test_a_full_address_space_is_a_mapping_error() -> None:
    _, device = make(bits=16)
    with pagepool.PagePool(device=device) as pool:
        batch = pool.alloc_bulk(15)
        assert (pool.dma_stats.maps, pool.dma_stats.map_errors) == (15, 49)
        with pytest.raises(pagepool.OutOfPages) as caught:
            pool.alloc()
        assert isinstance(caught.value.__cause__, pagepool.NoDescriptor)
        batch.put()
