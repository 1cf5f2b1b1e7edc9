/* SPDX-License-Identifier: BSD-2-Clause */
/* Why the last call failed, and which version this is. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

#define STR(x) #x
#define XSTR(x) STR(x)

static _Thread_local char last_error[256];

int pp_fail(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
	return err;
}

const char *page_pool_last_error(void)
{
	return last_error;
}

const char *page_pool_version(void)
{
	return XSTR(PAGEPOOL_VERSION_MAJOR) "." XSTR(PAGEPOOL_VERSION_MINOR) "." XSTR(
		PAGEPOOL_VERSION_PATCH);
}

int pp_check_nid(int nid)
{
	if (nid < PP_NUMA_NO_NODE || nid >= PP_MAX_NUMA_NODES)
		return pp_fail(-EINVAL, "NUMA node %d: must be from 0 to %d, or -1 for none", nid,
			       PP_MAX_NUMA_NODES - 1);
	return 0;
}

int pp_check_size(const char *what, const void *params, size_t size, size_t min, size_t known)
{
	const unsigned char *bytes = params;

	if (size < min)
		return pp_fail(-EINVAL,
			       "%s.size is %zu, less than the %zu it must be: set it to sizeof",
			       what, size, min);
	if (size > 4096)
		return pp_fail(-EINVAL, "%s.size is %zu, which no version has", what, size);
	for (size_t i = known; i < size; i++)
		if (bytes[i])
			return pp_fail(-EINVAL,
				       "%s has a field at byte %zu that this version does not know",
				       what, i);
	return 0;
}
