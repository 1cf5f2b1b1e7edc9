/* SPDX-License-Identifier: BSD-2-Clause */
/* Every call of the system that can fail, so that tests can make each of them fail. */
#include "internal.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef PP_FAULT_INJECTION
static int64_t countdown;

int64_t pp_sys_fail_nth(int64_t n)
{
	int64_t left = pp_load_relaxed(&countdown);

	pp_store_relaxed(&countdown, n);
	return left;
}

static bool fault(void)
{
	/* relaxed: a counter, nothing is published through it. */
	if (pp_load_relaxed(&countdown) == PP_FAIL_ALL)
		return true;
	return pp_load_relaxed(&countdown) > 0 && pp_fetch_add_relaxed(&countdown, -1) == 1;
}
#else
static inline bool fault(void)
{
	return false;
}
#endif

void *pp_sys_calloc(size_t n, size_t size)
{
	return fault() ? NULL : calloc(n, size);
}

void *pp_sys_aligned_zalloc(size_t alignment, size_t size)
{
	void *p;

	size = (size + alignment - 1) & ~(alignment - 1);
	if (fault())
		return NULL;
	p = aligned_alloc(alignment, size);
	if (p)
		memset(p, 0, size);
	return p;
}

void *pp_sys_reserve(size_t size, size_t alignment)
{
	char *p, *start;
	size_t head;

	if (fault())
		return NULL;
	p = mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		 0);
	if (p == MAP_FAILED)
		return NULL;
	start = (char *)(((uintptr_t)p + alignment - 1) & ~(uintptr_t)(alignment - 1));
	head = (size_t)(start - p);
	/* Giving back the ends cannot make things worse if it fails. */
	if (head)
		munmap(p, head);
	if (alignment > head)
		munmap(start + size, alignment - head);
	return start;
}

void pp_sys_unreserve(void *addr, size_t size)
{
	munmap(addr, size);
}

int pp_sys_commit(void *addr, size_t size, unsigned huge)
{
	if (fault())
		return -ENOMEM;
	if (huge == PP_HUGE_HUGETLB) {
		/* MAP_FIXED over our own reservation; on failure the reservation is gone there, so
		 * put it back before anybody else is given the address. */
		if (mmap(addr, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB, -1,
			 0) != MAP_FAILED)
			return 0;
		int err = -errno;

		mmap(addr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
		     -1, 0);
		return err;
	}
	if (mprotect(addr, size, PROT_READ | PROT_WRITE))
		return -errno;
	if (huge == PP_HUGE_THP && madvise(addr, size, MADV_HUGEPAGE)) {
		int err = -errno;

		mprotect(addr, size, PROT_NONE);
		return err;
	}
	return 0;
}

int pp_sys_unreadable(void *addr, size_t size, bool on)
{
	if (fault())
		return -ENOMEM;
	return mprotect(addr, size, on ? PROT_NONE : PROT_READ | PROT_WRITE) ? -errno : 0;
}

/*
 * MPOL_PREFERRED and not MPOL_BIND: with BIND a node that runs full has the process killed, and
 * where reserved huge pages run out there a touch is a SIGBUS, while other nodes have memory. A
 * packet program is better off with a slower page, and so does the kernel's page_pool: its node is
 * a wish that the page allocator may not grant.
 */
int pp_sys_bind(void *addr, size_t size, int nid)
{
	enum {
		WORD = sizeof(unsigned long) * CHAR_BIT
	};
	unsigned long nodes[(PP_MAX_NUMA_NODES + WORD - 1) / WORD] = {0};

	if (fault())
		return -ENOMEM;
	nodes[nid / WORD] = 1ul << (nid % WORD);
#ifdef SYS_mbind
	/* Of the number of bits the system takes one off. */
	if (syscall(SYS_mbind, addr, size, MPOL_PREFERRED, nodes,
		    (unsigned long)PP_MAX_NUMA_NODES + 1, 0))
		return -errno;
	return 0;
#else
	return -EOPNOTSUPP;
#endif
}

/* What of [always] madvise never and the like is in brackets? Empty: there is no such file. */
static void setting(const char *path, char *ret, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, ret, size - 1);
	char *open_, *close_;

	if (fd >= 0)
		close(fd);
	ret[n > 0 ? n : 0] = '\0';
	open_ = strchr(ret, '[');
	close_ = open_ ? strchr(open_, ']') : NULL;
	if (close_)
		memmove(ret, open_ + 1, (size_t)(close_ - open_ - 1));
	ret[close_ ? close_ - open_ - 1 : 0] = '\0';
}

bool pp_sys_thp_is_off(void)
{
	char word[128];

	if (fault())
		return false;
	if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1)
		return true;
	/* Since Linux 6.8 each size has a word of its own; "inherit" means the common one. */
	setting("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled", word, sizeof(word));
	if (!word[0] || !strcmp(word, "inherit"))
		setting("/sys/kernel/mm/transparent_hugepage/enabled", word, sizeof(word));
	return !strcmp(word, "never");
}

int pp_sys_thread(void *(*fn)(void *))
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int err;

	if (fault())
		return -EAGAIN;
	err = pthread_attr_init(&attr);
	if (err)
		return -err;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* The user's signals are for the user's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, fn, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

int64_t pp_sys_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail with these arguments */
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
