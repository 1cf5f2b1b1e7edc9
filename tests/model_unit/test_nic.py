# SPDX-License-Identifier: BSD-2-Clause
"""The NIC: descriptors in order, what is dropped, and what the driver gets back."""

from __future__ import annotations

from typing import Any

import pytest

from pagepool import engine, model


@pytest.fixture(params=[engine, model], ids=["engine", "model"])
def api(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_frames_go_into_pages_in_order(api: Any) -> None:
    device = api.Iommu().attach("eth0")
    nic = api.Nic(device, slots=4)
    with api.PagePool(device=device, offset=64, max_len=1536) as pool:
        pages = [pool.alloc() for _ in range(3)]
        for page in pages:
            nic.post(page)
        assert nic.receive(b"first")
        assert nic.receive(bytearray(b"second one"))
        assert [nic.poll(), nic.poll(), nic.poll()] == [(pages[0], 5), (pages[1], 10), None]
        assert bytes(pages[0].view()[64:69]) == b"first"
        assert bytes(pages[1].view()[64:74]) == b"second one"
        assert (nic.take(), nic.take()) == (pages[2], None)
        assert nic.dropped == 0
        pool.put_bulk(pages)


def test_what_is_dropped(api: Any) -> None:
    iommu = api.Iommu(on_fault=lambda fault: None)
    device = iommu.attach("eth0")
    nic = api.Nic(device)
    assert not nic.receive(b"no buffer")
    with api.PagePool(device=device, max_len=100) as pool:
        page, gone = pool.alloc(), pool.alloc()
        nic.post(page)
        assert not nic.receive(bytes(101))  # the buffer stays
        assert nic.dropped == 2
        assert nic.receive(bytes(100))
        assert nic.poll() == (page, 100)
        nic.post(gone)
        device.unmap(gone.dma, 4096, "from_device")
        assert not nic.receive(b"refused")
        assert nic.poll() == (gone, -1)
        assert nic.dropped == 3
        assert [fault.op for fault in iommu.faults] == ["write"]
        pool.put_bulk([page, gone])
    # The pool unmaps it by itself, which is refused.
    assert [fault.op for fault in iommu.faults] == ["write", "unmap"]


def test_descriptors_are_free_again_when_they_are_polled_or_taken(api: Any) -> None:
    nic = api.Nic(slots=2)
    with api.PagePool(device=api.NO_DEVICE) as pool:
        pages = [pool.alloc() for _ in range(3)]
        nic.post(pages[0])
        nic.post(pages[1])
        with pytest.raises(api.NoDescriptor, match="all 2 descriptors"):
            nic.post(pages[2])
        nic.receive(b"x")
        with pytest.raises(api.NoDescriptor):
            nic.post(pages[2])  # completed and not polled
        assert nic.take() is pages[1]
        nic.post(pages[2])
        assert nic.poll() == (pages[0], 1)
        nic.receive(b"yz")
        assert nic.poll() == (pages[2], 2)
        pool.put_bulk(pages)


def test_a_piece_is_a_buffer_of_its_own(api: Any) -> None:
    nic = api.Nic()
    with api.PagePool(device=api.NO_DEVICE) as pool:
        first, second = pool.alloc_frag(64), pool.alloc_frag(64)
        first.view()[:] = bytes(64)
        nic.post(second)
        assert not nic.receive(bytes(65))
        assert nic.receive(b"into the second")
        assert bytes(second.view()[:15]) == b"into the second"
        assert bytes(first.view()) == bytes(64)
        first.put()
        second.put()


def test_a_page_in_the_nic_is_kept(api: Any) -> None:
    nic = api.Nic()
    with api.PagePool(device=api.NO_DEVICE) as pool:
        nic.post(pool.alloc())  # not dropped: no ResourceWarning
        nic.receive(b"x")
        done = nic.poll()
        assert done is not None
        done[0].put()


def test_without_an_iommu_a_page_needs_no_mapping(api: Any) -> None:
    nic = api.Nic()
    pool = api.PagePool()
    page = pool.alloc()
    pool.close()
    nic.post(page)
    assert nic.receive(b"late")
    assert bytes(page.view()[:4]) == b"late"
    assert nic.poll() == (page, 4)
    page.put()
    assert pool.stats.recycle_ring == 1  # the NIC's view is gone


def test_a_page_that_was_put_while_it_was_posted(api: Any) -> None:
    nic = api.Nic()
    with api.PagePool(device=api.NO_DEVICE) as pool:
        page = pool.alloc()
        nic.post(page)
        page.put()
        assert not nic.receive(b"x")
        assert nic.poll() == (page, -1)
        assert nic.dropped == 1


def test_what_cannot_be_posted_or_made(api: Any) -> None:
    nic = api.Nic(api.Iommu().attach("eth0"))
    with api.PagePool() as pool:
        page = pool.alloc()
        with pytest.raises(api.NotSupported, match="made without a device"):
            nic.post(page)
        page.put()
        for other in (nic, api.Nic()):
            with pytest.raises(api.PageGone):
                other.post(page)
    pool = api.PagePool(device=api.NO_DEVICE)
    page = pool.alloc()
    pool.close()
    for other in (nic, api.Nic(), api.Nic(api.NO_DEVICE)):
        with pytest.raises(api.DeviceGone):
            other.post(page)
    page.put()
    with pytest.raises(TypeError, match="must be a Page"):
        nic.post(5)
    for slots in (3, 1 << 17, -1):
        with pytest.raises(api.InvalidParameter):
            api.Nic(slots=slots)
    with pytest.raises(TypeError, match="must be a Device"):
        api.Nic("eth0")


def test_a_device_that_cannot_write_or_breaks(api: Any) -> None:
    class Mute(api.Device):  # type: ignore[misc]
        def map(self, address: int, length: int, direction: str) -> int:
            return address

        def unmap(self, dma: int, length: int, direction: str) -> None:
            pass

    class Broken(Mute):
        def write(self, dma: int, data: object) -> None:
            raise RuntimeError("broke")

    for device, written in ((Mute(), False), (Broken(), None)):
        nic = api.Nic(device)
        with api.PagePool(device=device) as pool:
            page = pool.alloc()
            nic.post(page)
            if written is None:
                with pytest.raises(RuntimeError, match="broke"):
                    nic.receive(b"x")
            else:
                assert nic.receive(b"x") is written
            assert nic.poll() == (page, -1)
            assert nic.dropped == 1
            page.put()
