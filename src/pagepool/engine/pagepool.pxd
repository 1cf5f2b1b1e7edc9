# SPDX-License-Identifier: BSD-2-Clause
# cython: language_level=3
"""The C API, as far as the engine uses it. The words are in include/pagepool.h."""

from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef extern from "pagepool.h" nogil:
    enum:
        PP_NUMA_NO_NODE
        PP_FLAG_NO_STATS
        PP_HUGE_NONE
        PP_HUGE_THP
        PP_HUGE_HUGETLB
        PP_LACKS_NODE
        PP_LACKS_THP
        PP_DEFAULT_POOL_SIZE
        PP_PAGE_SIZE

    struct page_pool:
        pass
    struct pp_page:
        pass
    struct pp_napi:
        pass
    struct pp_provider:
        pass

    ctypedef void (*page_pool_log_fn)(void *ctx, const char *text) noexcept

    const char *page_pool_version()
    const char *page_pool_last_error()
    void page_pool_set_log(page_pool_log_fn fn, void *ctx)

    struct pp_arena_params:
        size_t size
        size_t limit
        size_t reserve
        int nid
        unsigned huge

    struct pp_provider_info:
        size_t size
        uint64_t limit
        uint64_t mapped
        uint64_t out
        uint64_t failed
        int nid
        unsigned huge
        unsigned lacks

    struct pp_region_params:
        size_t size
        void *memory
        size_t length
        size_t reserve
        int nid
        void (*release)(void *ctx, void *memory, size_t length) noexcept
        void *ctx

    int pp_region_create(const pp_region_params *params, pp_provider **ret)
    int pp_arena_create(const pp_arena_params *params, pp_provider **ret)
    void pp_provider_get(pp_provider *provider)
    void pp_provider_put(pp_provider *provider)
    int pp_provider_get_info(pp_provider *provider, pp_provider_info *ret)

    int pp_napi_create(pp_napi **ret)
    int pp_napi_destroy(pp_napi *napi)
    int pp_napi_enter(pp_napi *napi)
    int pp_napi_exit(pp_napi *napi)
    bint pp_napi_entered(const pp_napi *napi)

    struct page_pool_params:
        size_t size
        unsigned flags
        unsigned order
        unsigned pool_size
        int nid
        pp_napi *napi
        pp_provider *provider
        unsigned retry_ms
        unsigned warn_ms

    struct page_pool_stats:
        size_t size
        uint64_t alloc_fast
        uint64_t alloc_slow
        uint64_t alloc_slow_high_order
        uint64_t alloc_empty
        uint64_t alloc_refill
        uint64_t alloc_waive
        uint64_t recycle_cached
        uint64_t recycle_cache_full
        uint64_t recycle_ring
        uint64_t recycle_ring_full
        uint64_t recycle_released_refcnt

    int page_pool_create(const page_pool_params *params, page_pool **ret)
    void page_pool_destroy(page_pool *pool)
    void page_pool_ref(page_pool *pool)
    void page_pool_unref(page_pool *pool)
    pp_page *page_pool_alloc_pages(page_pool *pool)
    size_t page_pool_alloc_pages_bulk(page_pool *pool, size_t n, pp_page **pages)
    pp_page *page_pool_alloc_frag(page_pool *pool, size_t *offset, size_t size)
    void page_pool_put_page(page_pool *pool, pp_page *page, unsigned dma_sync_size,
                            bint allow_direct)
    void page_pool_put_page_bulk(pp_page **pages, size_t n)
    int page_pool_update_nid(page_pool *pool, int nid)
    int page_pool_enable_direct_recycling(page_pool *pool, pp_napi *napi)
    int page_pool_disable_direct_recycling(page_pool *pool)
    int32_t page_pool_inflight(const page_pool *pool)
    uint32_t page_pool_id(const page_pool *pool)
    unsigned page_pool_order(const page_pool *pool)
    unsigned page_pool_size(const page_pool *pool)
    int page_pool_nid(const page_pool *pool)
    pp_provider *page_pool_provider(const page_pool *pool)
    int page_pool_get_stats(const page_pool *pool, page_pool_stats *ret)

    page_pool *page_pool_get_pp(const pp_page *page)
    void *pp_page_address(const pp_page *page)
    size_t pp_page_size(const pp_page *page)
    unsigned pp_page_order(const pp_page *page)
    int pp_page_nid(const pp_page *page)
    bint pp_page_is_pfmemalloc(const pp_page *page)
    long pp_page_users(const pp_page *page)
    int pp_page_ref_count(const pp_page *page)
    void *pp_page_private(const pp_page *page)
    void pp_page_set_private(pp_page *page, void *private_)
    void pp_page_get(pp_page *page)
    void pp_page_put(pp_page *page)
