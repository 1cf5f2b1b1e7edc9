#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# How many instructions a round of each benchmark takes, counted by valgrind: they do not depend on
# the machine's mood, so a hot path that grows is seen. The limits are a tenth above what gcc 12
# makes of it on x86-64.
#
#     instructions.sh BENCH_PAGE_POOL_SIMPLE
set -eu

bench=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT INT TERM

# count test loops
count() {
	valgrind --tool=callgrind --callgrind-out-file=/dev/null \
		"$bench" --tests "$1" --runs 1 --loops "$2" 2>"$out/err" >"$out/out" || {
		cat "$out/err" >&2
		exit 1
	}
	sed -n 's/.*Collected : //p' "$out/err"
}

n=0
echo "TAP version 13"
while read -r test limit; do
	n=$((n + 1))
	short=$(count "$test" 10000)
	long=$(count "$test" 110000)
	# In hundredths, since the shell knows no fractions.
	per=$(((long - short) / 1000))
	text=$(printf '%s: %d.%02d instructions a round, at most %d' "$test" $((per / 100)) $((per % 100)) "$limit")
	if [ "$per" -gt 1000 ] && [ "$per" -le $((limit * 100)) ]; then
		echo "ok $n - $text"
	else
		echo "not ok $n - $text"
	fi
done <<EOF
no-softirq-page_pool01 57
no-softirq-page_pool02 136
tasklet_page_pool01_fast_path 63
tasklet_page_pool02_ptr_ring 136
tasklet_page_pool03_slow 179
EOF
echo "1..$n"
