/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages: to the user's function, or to standard error. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static page_pool_log_fn log_fn;
static void *log_ctx;
static unsigned running; /* calls of log_fn under way */

/* In the child of a fork only the forking thread is left: whoever held the lock is not. */
static void after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&idle, NULL);
	running = 0;
}

static void __attribute__((constructor)) at_load(void)
{
	/* Without memory for the handler, logging in a child may block; nothing else depends on it.
	 */
	(void)pthread_atfork(NULL, NULL, after_fork);
}

void page_pool_set_log(page_pool_log_fn fn, void *ctx)
{
	pthread_mutex_lock(&lock);
	/* New calls would go on to keep it busy: none starts while fn is NULL. */
	log_fn = NULL;
	while (running)
		pthread_cond_wait(&idle, &lock);
	log_fn = fn;
	log_ctx = ctx;
	pthread_mutex_unlock(&lock);
}

void pp_log(const char *fmt, ...)
{
	char text[512];
	page_pool_log_fn fn;
	void *ctx;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);

	pthread_mutex_lock(&lock);
	fn = log_fn;
	ctx = log_ctx;
	running++;
	pthread_mutex_unlock(&lock);

	if (fn)
		fn(ctx, text);
	else
		fprintf(stderr, "%s\n", text);

	pthread_mutex_lock(&lock);
	if (!--running)
		pthread_cond_broadcast(&idle);
	pthread_mutex_unlock(&lock);
}
