/* SPDX-License-Identifier: BSD-2-Clause */
/* What all providers have in common, and the pages that they hand out. */
#include <string.h>

#include "page.h"

void pp_provider_get(struct pp_provider *provider)
{
	/* relaxed: the caller has a reference already. */
	pp_fetch_add_relaxed(&provider->refs, 1);
}

void pp_provider_put(struct pp_provider *provider)
{
	/* acq_rel: what the others did with it happened before it is retired. */
	if (pp_fetch_sub_acq_rel(&provider->refs, 1) == 1)
		provider->ops->retire(provider);
}

int pp_provider_get_info(struct pp_provider *provider, struct pp_provider_info *ret)
{
	struct pp_provider_info info = {.size = sizeof(info)};
	int err = pp_check_size("struct pp_provider_info", ret, ret->size,
				offsetof(struct pp_provider_info, limit), ret->size);

	if (err)
		return err;
	provider->ops->info(provider, &info);
	info.size = ret->size;
	/* A caller from before a field was added gets what it knows; one from after it zeroes. */
	if (ret->size > sizeof(info))
		memset((char *)ret + sizeof(info), 0, ret->size - sizeof(info));
	memcpy(ret, &info, ret->size < sizeof(info) ? ret->size : sizeof(info));
	return 0;
}

struct pp_page *pp_provider_page(struct pp_provider *provider, const void *address)
{
	return provider->ops->page(provider, address);
}

/* ---- metadata ---------------------------------------------------------------------------------
 */

/* In whole chunks: so the buddy of an arena's page always has some. */
static size_t chunks(uint32_t nr)
{
	return (nr + (size_t)PP_CHUNK_PAGES - 1) / PP_CHUNK_PAGES;
}

static size_t page_bytes(uint32_t nr)
{
	return chunks(nr) * PP_CHUNK_PAGES * sizeof(struct pp_page);
}

/* Words of whole pages of the system's, whatever their size. */
#define HELD_UNIT ((size_t)65536 / sizeof(uint16_t))

static size_t held_bytes(uint32_t nr)
{
	size_t words = (chunks(nr) * PP_CHUNK_PAGES + HELD_UNIT - 1) & ~(HELD_UNIT - 1);

	return words * sizeof(uint16_t);
}

int pp_provider_reserve_pages(struct pp_provider *provider, uint32_t nr)
{
	/* A chunk's metadata is aligned to its size. */
	struct pp_page *pages =
		pp_sys_reserve(page_bytes(nr), PP_CHUNK_PAGES * sizeof(struct pp_page));
	uint16_t *held = pages ? pp_sys_reserve(held_bytes(nr), HELD_UNIT * sizeof(*held)) : NULL;

	if (!held) {
		if (pages)
			pp_sys_unreserve(pages, page_bytes(nr));
		return -ENOMEM;
	}
	provider->pages = pages;
	provider->held = held;
	provider->nr = nr;
	return 0;
}

int pp_provider_commit_pages(struct pp_provider *provider, uint32_t first)
{
	size_t held = first & ~(HELD_UNIT - 1);
	int err = pp_sys_commit(&provider->pages[first], PP_CHUNK_PAGES * sizeof(struct pp_page),
				PP_HUGE_NONE);

	/* Those of several chunks at once, and again with each of them. */
	return err ? err
		   : pp_sys_commit(provider->held + held, HELD_UNIT * sizeof(uint16_t),
				   PP_HUGE_NONE);
}

int pp_provider_reserve_records(struct pp_provider *provider)
{
	if (!provider->records)
		provider->records = pp_sys_reserve(page_bytes(provider->nr),
						   PP_CHUNK_PAGES * sizeof(struct pp_record));
	return provider->records ? 0 : -ENOMEM;
}

int pp_provider_commit_records(struct pp_provider *provider, const struct pp_page *page)
{
	size_t first = (size_t)(page - provider->pages) & ~(size_t)(PP_CHUNK_PAGES - 1);

	/* Once for each pool that has pages there: what is there stays. */
	return pp_sys_commit(&provider->records[first], PP_CHUNK_PAGES * sizeof(struct pp_record),
			     PP_HUGE_NONE);
}

int pp_provider_bind_pages(struct pp_provider *provider, int nid)
{
	int err = pp_sys_bind(provider->pages, page_bytes(provider->nr), nid);

	return err ? err : pp_sys_bind(provider->held, held_bytes(provider->nr), nid);
}

void pp_provider_forget_pages(struct pp_provider *provider)
{
	if (provider->records)
		pp_sys_unreserve(provider->records, page_bytes(provider->nr));
	pp_sys_unreserve(provider->pages, page_bytes(provider->nr));
	pp_sys_unreserve(provider->held, held_bytes(provider->nr));
}

/* ---- pages ---------------------------------------------------------------------------------- */

struct page_pool *page_pool_get_pp(const struct pp_page *page)
{
	/* relaxed: whoever holds the page knows its pool to be alive or not by other means. */
	return (struct page_pool *)(pp_load_relaxed(&page->owner) & ~PP_OWNER_SPECIAL);
}

void *pp_page_address(const struct pp_page *page)
{
	return page->addr;
}

size_t pp_page_size(const struct pp_page *page)
{
	return PP_PAGE_SIZE << page->order;
}

unsigned pp_page_order(const struct pp_page *page)
{
	return page->order;
}

int pp_page_nid(const struct pp_page *page)
{
	return page->nid;
}

bool pp_page_is_pfmemalloc(const struct pp_page *page)
{
	/* relaxed: the flag does not change while the page is held. */
	return pp_load_relaxed(&page->ref) & PP_REF_PFMEMALLOC;
}

int pp_page_ref_count(const struct pp_page *page)
{
	/* relaxed: a snapshot. */
	return (int)(pp_load_relaxed(&page->ref) & PP_REF_COUNT_MASK);
}

long pp_page_users(const struct pp_page *page)
{
	/* relaxed: a snapshot. */
	return (long)pp_page_users_of(pp_load_relaxed(&page->ref));
}

void *pp_page_private(const struct pp_page *page)
{
	return page->private_;
}

void pp_page_set_private(struct pp_page *page, void *private_)
{
	page->private_ = private_;
}

void pp_page_get(struct pp_page *page)
{
	/* relaxed: the caller holds it already, so nobody can free it meanwhile. */
	pp_fetch_add_relaxed(&page->ref, PP_REF_ONE);
}

void pp_page_put(struct pp_page *page)
{
	pp_page_drop(page);
}
