/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A receive loop's use of the pool, in C:
 *
 *     cc -O2 examples/pool.c $(pkg-config --cflags --libs pagepool) -o pool && ./pool
 *
 * One consumer allocates in its napi and drops what it got, another thread returns the rest.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <pagepool.h>

#define POLLS 1000
#define BUDGET 64

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct pp_page *pages[BUDGET];
	size_t n;
	bool done;
};

/* Some other CPU: the reader of a socket. It gives back what it was handed, in bulk. */
static void *reader(void *arg)
{
	struct queue *q = arg;

	for (;;) {
		struct pp_page *pages[BUDGET];
		size_t n;

		pthread_mutex_lock(&q->lock);
		while (!q->n && !q->done)
			pthread_cond_wait(&q->changed, &q->lock);
		n = q->n;
		memcpy(pages, q->pages, n * sizeof(pages[0]));
		q->n = 0;
		pthread_cond_signal(&q->changed);
		pthread_mutex_unlock(&q->lock);
		if (!n)
			return NULL;
		page_pool_put_page_bulk(pages, n);
	}
}

static void pass_on(struct queue *q, struct pp_page **pages, size_t n)
{
	pthread_mutex_lock(&q->lock);
	while (q->n)
		pthread_cond_wait(&q->changed, &q->lock);
	memcpy(q->pages, pages, n * sizeof(pages[0]));
	q->n = n;
	pthread_cond_signal(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

int main(void)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool_stats stats = {.size = sizeof(stats)};
	struct queue q = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
	struct pp_napi *napi;
	struct page_pool *pool;
	pthread_t thread;

	if (pp_napi_create(&napi))
		goto fail;
	params.napi = napi;
	params.pool_size = 256;
	if (page_pool_create(&params, &pool))
		goto fail;
	if (pthread_create(&thread, NULL, reader, &q)) {
		fprintf(stderr, "pool: no thread\n");
		return 1;
	}

	for (int poll = 0; poll < POLLS; poll++) {
		struct pp_page *passed[BUDGET / 2];
		size_t n = 0;

		if (pp_napi_enter(napi))
			goto fail;
		for (int i = 0; i < BUDGET; i++) {
			struct pp_page *page = page_pool_alloc_pages(pool);

			if (!page)
				break;
			memset(pp_page_address(page), i, 64); /* the frame arrives */
			if (i % 2)
				passed[n++] = page;
			else
				page_pool_put_full_page(pool, page, false); /* dropped */
		}
		if (pp_napi_exit(napi))
			goto fail;
		if (n)
			pass_on(&q, passed, n);
	}

	pthread_mutex_lock(&q.lock);
	q.done = true;
	pthread_cond_signal(&q.changed);
	pthread_mutex_unlock(&q.lock);
	pthread_join(thread, NULL);

	if (page_pool_get_stats(pool, &stats))
		goto fail;
#define SHOW(group, name) printf("%-24s %10" PRIu64 "\n", #group "_" #name, stats.group##_##name);
	PAGE_POOL_STATS(SHOW)
	printf("%-24s %10" PRId32 "\n", "inflight", page_pool_inflight(pool));
	page_pool_destroy(pool);
	if (pp_napi_destroy(napi))
		goto fail;
	return 0;

fail:
	fprintf(stderr, "pool: %s\n", page_pool_last_error());
	return 1;
}
