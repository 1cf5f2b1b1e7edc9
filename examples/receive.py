# SPDX-License-Identifier: BSD-2-Clause
"""A receive loop: datagrams straight into pages, half of them dropped at once, half passed on.

python examples/receive.py
"""

from __future__ import annotations

import queue
import socket
import threading

import pagepool

POLLS = 100
BUDGET = 64


def reader(packets: queue.SimpleQueue[list[pagepool.Page]]) -> None:
    """Some other thread uses the packets and gives the pages back, many at once."""
    while pages := packets.get():
        pagepool.PagePool.put_bulk(pages)


def main() -> None:
    """Receive POLLS x BUDGET datagrams and print what the pool did."""
    receive, send = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    packets: queue.SimpleQueue[list[pagepool.Page]] = queue.SimpleQueue()
    thread = threading.Thread(target=reader, args=(packets,))
    thread.start()

    napi = pagepool.Napi()
    with receive, send, pagepool.PagePool(napi=napi, pool_size=256) as pool:
        for _ in range(POLLS):
            passed = []
            with napi:
                for i in range(BUDGET):
                    send.send(b"frame")
                    page = pool.alloc()
                    receive.recv_into(page.view())
                    if i % 2:
                        passed.append(page)
                    else:
                        pool.put(page)
            packets.put(passed)
        packets.put([])
        thread.join()
        stats = pool.stats
        print(f"allocated {stats.allocated}, from the provider {pool.stats.alloc_slow} x 64")
        print(f"direct {stats.recycle_cached}, through the ring {stats.recycle_ring}")


main()
