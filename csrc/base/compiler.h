/* SPDX-License-Identifier: BSD-2-Clause */
/* What the compilers call things. */
#ifndef PP_BASE_COMPILER_H
#define PP_BASE_COMPILER_H

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define PP_CACHELINE 64
#define PP_ALIGNED(n) __attribute__((aligned(n)))
/* Not on a line that comes along when another CPU fetches its neighbour: they come in pairs. */
#define PP_APART PP_ALIGNED(2 * PP_CACHELINE)
#define PP_NOINLINE __attribute__((noinline))
#define PP_COLD __attribute__((cold, noinline))
#define PP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#define PP_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#if defined(__SANITIZE_THREAD__)
#define PP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PP_TSAN 1
#endif
#endif

#endif
