/* SPDX-License-Identifier: BSD-2-Clause */
/* The names of the designs. */
#include <string.h>

#include "internal.h"

static const struct {
	const char *name;
	unsigned design;
} designs[] = {
	{"ring", PP_DESIGN_RING},
	{"list", PP_DESIGN_LIST},
	{"ours", PP_DESIGN_OURS},
	{"list-ring", PP_LIST_RING},
	{"list-batch", PP_LIST_RING | PP_LIST_BATCH},
	{"list-cache", PP_LIST_CACHE},
	{"list-ring-cache", PP_LIST_RING | PP_LIST_CACHE},
};

#define NR_DESIGNS (sizeof(designs) / sizeof(designs[0]))

const char *pp_design_name(unsigned design)
{
	for (size_t i = 0; i < NR_DESIGNS; i++) {
		if (designs[i].design == design)
			return designs[i].name;
	}
	return NULL;
}

int pp_design_parse(const char *name, unsigned *ret)
{
	for (size_t i = 0; i < NR_DESIGNS; i++) {
		if (!strcmp(designs[i].name, name)) {
			*ret = designs[i].design;
			return 0;
		}
	}
	return pp_fail(
		-EINVAL,
		"design '%.40s': must be ring, list, ours, or, for steps of list, list-ring, "
		"list-batch, list-cache or list-ring-cache",
		name);
}
