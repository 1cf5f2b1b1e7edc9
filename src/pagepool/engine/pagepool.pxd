# SPDX-License-Identifier: BSD-2-Clause
# cython: language_level=3
"""The C API, as far as the engine uses it. The words are in include/pagepool.h."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "pagepool.h" nogil:
    enum:
        PP_NUMA_NO_NODE
        PP_FLAG_DMA_MAP
        PP_FLAG_DMA_SYNC_DEV
        PP_FLAG_NO_STATS
        PP_FLAG_NO_TRACKING
        PP_FLAG_CHECKED
        PP_FLAG_CHECKED_FULL
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

    ctypedef struct pp_device "struct pp_device":
        pass
    ctypedef struct pp_iommu "struct pp_iommu":
        pass
    ctypedef enum pp_dma_direction "enum pp_dma_direction":
        PP_DMA_BIDIRECTIONAL
        PP_DMA_TO_DEVICE
        PP_DMA_FROM_DEVICE

    struct pp_device_params:
        size_t size
        const char *name
        void *ctx
        int (*map)(void *ctx, void *memory, size_t length, pp_dma_direction dir, uint64_t *dma) noexcept
        void (*unmap)(void *ctx, uint64_t dma, size_t length, pp_dma_direction dir) noexcept
        void (*sync_for_device)(void *ctx, uint64_t dma, size_t offset, size_t length,
                                pp_dma_direction dir) noexcept
        void (*sync_for_cpu)(void *ctx, uint64_t dma, size_t offset, size_t length,
                             pp_dma_direction dir) noexcept
        int (*write)(void *ctx, uint64_t dma, const void *data, size_t length) noexcept
        int (*read)(void *ctx, uint64_t dma, void *data, size_t length) noexcept
        void (*release)(void *ctx) noexcept

    int pp_device_create(const pp_device_params *params, pp_device **ret)
    pp_device *pp_device_none()
    void pp_device_put(pp_device *device)
    const char *pp_device_name(const pp_device *device)
    void pp_device_unmap(pp_device *device, uint64_t dma, size_t length, pp_dma_direction dir)
    void pp_device_sync_for_device(pp_device *device, uint64_t dma, size_t offset, size_t length,
                                   pp_dma_direction dir)
    void pp_device_sync_for_cpu(pp_device *device, uint64_t dma, size_t offset, size_t length,
                                pp_dma_direction dir)
    int pp_device_write(pp_device *device, uint64_t dma, const void *data, size_t length)
    int pp_device_read(pp_device *device, uint64_t dma, void *data, size_t length)
    void page_pool_set_wait(void (*wait)() noexcept)

    ctypedef enum pp_iommu_op "enum pp_iommu_op":
        PP_IOMMU_WRITE
    ctypedef enum pp_iommu_why "enum pp_iommu_why":
        PP_IOMMU_DEVICE_GONE

    struct pp_iommu_fault:
        pp_iommu_op op
        pp_iommu_why why
        const char *device
        uint64_t dma
        size_t length
        void *memory
        const char *text

    struct pp_iommu_params:
        size_t size
        unsigned bits
        void (*fault)(void *ctx, const pp_iommu_fault *fault) noexcept
        void *ctx

    int pp_iommu_create(const pp_iommu_params *params, pp_iommu **ret)
    void pp_iommu_put(pp_iommu *iommu)
    int pp_iommu_attach(pp_iommu *iommu, const char *name, pp_device **ret)
    int64_t pp_device_unbind(pp_device *device)

    struct pp_iommu_mapping:
        uint64_t dma
        void *memory
        size_t length
        pp_dma_direction dir

    size_t pp_iommu_mappings(pp_device *device, uint64_t dma, size_t n, pp_iommu_mapping *ret)
    uint64_t pp_iommu_faults(const pp_iommu *iommu)

    struct page_pool_params:
        size_t size
        unsigned flags
        unsigned order
        unsigned pool_size
        int nid
        pp_napi *napi
        pp_provider *provider
        pp_device *device
        unsigned dma_dir
        unsigned offset
        unsigned max_len
        unsigned retry_ms
        unsigned warn_ms
        unsigned design

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
    unsigned page_pool_flags(const page_pool *pool)
    unsigned page_pool_design(const page_pool *pool)
    void page_pool_flush(page_pool *pool)
    uint64_t page_pool_held_back(const page_pool *pool)
    const char *pp_design_name(unsigned design)
    int pp_design_parse(const char *name, unsigned *ret)
    pp_provider *page_pool_provider(const page_pool *pool)
    int page_pool_get_stats(const page_pool *pool, page_pool_stats *ret)

    struct page_pool_dma_stats:
        size_t size
        uint64_t maps
        uint64_t map_errors
        uint64_t unmaps
        uint64_t unmaps_destroy
        uint64_t unmaps_skipped
        uint64_t syncs
        uint64_t sync_bytes
        uint64_t syncs_skipped

    int page_pool_get_dma_stats(const page_pool *pool, page_pool_dma_stats *ret)
    void page_pool_dma_sync_for_cpu(const page_pool *pool, pp_page *page, unsigned offset,
                                    unsigned size)
    uint64_t page_pool_get_dma_addr(const pp_page *page)

    ctypedef enum pp_report_kind "enum pp_report_kind":
        PP_REPORT_DEAD_POOL
        PP_REPORT_USE_AFTER_PUT
        PP_REPORT_WRONG_CONTEXT

    struct pp_report:
        pp_report_kind kind
        uint32_t pool
        const void *address
        size_t offset
        const char *text

    void page_pool_set_report(void (*fn)(void *ctx, const pp_report *report) noexcept, void *ctx)

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


# Of the library inside, not of the API: for tests.
cdef extern from *:
    """
    void pp_pool_count_from(struct page_pool *pool, uint64_t n);
    """
    void pp_pool_count_from(page_pool *pool, uint64_t n) nogil
