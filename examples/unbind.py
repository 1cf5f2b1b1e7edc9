# SPDX-License-Identifier: BSD-2-Clause
"""A driver unbinds while a socket has pages of its pool: by the old rule, and by today's.

python examples/unbind.py
"""

from __future__ import annotations

import pagepool

FRAMES = [b"one", b"two", b"three", b"four"]
KEPT = 2  # frames that nobody has read when the driver goes


def unbind(track_mappings: bool) -> None:
    """Receive some frames, let the driver go, and then give back what is with the socket."""
    iommu = pagepool.Iommu(on_fault=lambda fault: None)  # they are printed from iommu.faults
    device = iommu.attach("eth0")
    region = pagepool.Region.shared(64 * 4096)  # so that pages have numbers to print
    pool = pagepool.PagePool(
        provider=region, device=device, dma_sync=True, track_mappings=track_mappings
    )
    nic = pagepool.Nic(device, slots=8)

    for _ in range(8):
        nic.post(pool.alloc())
    for frame in FRAMES:
        nic.receive(frame)  # into a page, through the IOMMU
    socket = []
    while done := nic.poll():
        socket.append(done)
    number = {page.address: region.offset(page) // 4096 for page, _ in socket}
    for page, length in socket[KEPT:]:
        pool.dma_sync_for_cpu(page, size=length)
        pool.put(page, dma_sync_size=length)
    del socket[KEPT:]
    with_socket = [f"page {number[page.address]} at {page.dma:#x}" for page, _ in socket]
    print(f"  {len(FRAMES)} frames received, a socket has {' and '.join(with_socket)}")

    while unused := nic.take():
        pool.put(unused)
    pool.close()
    print(f"  pool closed, {pool.inflight} pages in flight; mapped: {len(device.mappings)}")
    print(f"  driver unbound, it left {device.unbind()} mappings behind")

    print("  the socket gives its pages back:")
    for page, _ in socket:
        page.put()
    for fault in iommu.faults:
        where = "a page unknown" if fault.address is None else f"page {number[fault.address]}"
        print(
            f"    {fault.device}: {fault.op} of {fault.length} bytes at {fault.dma:#x} refused, "
            f"{fault.why}; {where}"
        )
    stats = pool.dma_stats
    print(f"    {iommu.fault_count} refused by the IOMMU; {pool.inflight} pages in flight")
    print(
        f"  maps {stats.maps}, unmaps {stats.unmaps}, unmaps_destroy {stats.unmaps_destroy}, "
        f"unmaps_skipped {stats.unmaps_skipped}, syncs_skipped {stats.syncs_skipped}"
    )


print("track_mappings=False, the rule up to Linux 6.15: unmapped when they come back")
unbind(track_mappings=False)
print()
print("track_mappings=True, the default: unmapped when the pool is closed, wherever they are")
unbind(track_mappings=True)
