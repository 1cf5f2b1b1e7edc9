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

/* ---- pages ---------------------------------------------------------------------------------- */

struct page_pool *page_pool_get_pp(const struct pp_page *page)
{
	/* relaxed: whoever holds the page knows its pool to be alive or not by other means. */
	return pp_load_relaxed(&page->pp);
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
