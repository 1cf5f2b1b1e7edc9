#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Do the tests find what they are for? Each patch here plants one bug in a copy of the core, and says
# which tests, built how, have to fail with it: run.sh [patch ...]
#
#     Caught-by: program plain|asan|tsan
#
# Prints TAP and, at the end, the table. A test that hangs has failed as well.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# A stress that has to hit a window gets several seeds.
seeds="1 2 3 4 5 6 7 8"
# A bug is found early or not at all: no failure is worth waiting longer for.
limit=${PP_PLANTED_TIMEOUT:-20}

# build source program how: the path of the program.
build() {
	case $3 in
	plain) san= ;;
	asan) san="-fsanitize=address,undefined -fno-sanitize-recover=undefined" ;;
	tsan) san="-fsanitize=thread" ;;
	*) echo "$2: how is it built: $3?" >&2; return 1 ;;
	esac
	faults=
	[ "$2" != test_faults ] || faults=-DPP_FAULT_INJECTION
	objects=$work/objects-$3$faults
	mkdir -p "$objects"
	# shellcheck disable=SC2086 # words
	(
		cd "$objects"
		flags="-std=gnu11 -g -O1 -w -D_GNU_SOURCE $san $faults -I$1/include -I$1/csrc"
		ls "$1"/csrc/base/*.c "$1"/csrc/core/*.c "$top/tests/c/$2.c" |
			xargs -P "$(nproc)" -n 1 $cc $flags -c
		$cc $san ./*.o -lpthread -o "$work/$2-$3"
		rm -f "$2.o"
	)
}

# fails program how: does it?
fails() {
	export TSAN_OPTIONS=halt_on_error=1:die_after_fork=0 ASAN_OPTIONS=detect_leaks=1
	if [ "$1" = stress ]; then
		for seed in $seeds; do
			PP_TEST_SEED=$seed PP_TEST_ROUNDS=8000 timeout "$limit" "$work/$1-$2" \
				>"$work/log" 2>&1 || return 0
		done
		return 1
	fi
	# A race is not lost every time.
	for _ in 1 2 3 4 5 6 7 8; do
		PP_TEST_ROUNDS=100000 timeout "$limit" "$work/$1-$2" >"$work/log" 2>&1 || return 0
	done
	return 1
}

# What it said: the first failed check, or the sanitizer's verdict.
how() {
	sed -n -e 's/^# \(.*test[^ ]*\.[ch]:[0-9]*:.*\)/\1/p' -e 's/^# \(.*stress\.c:[0-9]*:.*\)/\1/p' \
		-e 's/^SUMMARY: \(.*\)/\1/p' "$work/log" | sed "s|$top/||;s|[^ ]*/csrc/|csrc/|" | head -n 1 |
		cut -c 1-100 | grep . || echo "crashed or hung"
}

[ $# -gt 0 ] || set -- "$here"/*.patch
n=0
failed=0
table=
echo "TAP version 13"
for patch in "$@"; do
	name=$(basename "$patch" .patch)
	rm -rf "$work/tree" "$work"/objects-*
	mkdir "$work/tree"
	cp -R "$top/csrc" "$top/include" "$work/tree"
	if ! patch -s -p1 -d "$work/tree" <"$patch" >"$work/log" 2>&1; then
		n=$((n + 1))
		failed=1
		sed 's/^/# /' "$work/log"
		echo "not ok $n - $name: does not apply any more, renew it"
		continue
	fi
	sed -n 's/^Caught-by: //p' "$patch" >"$work/by"
	while read -r program built <&3; do
		n=$((n + 1))
		build "$work/tree" "$program" "$built"
		if fails "$program" "$built"; then
			said=$(how)
			echo "ok $n - $name: found by $program ($built)"
		else
			said="SURVIVED"
			failed=1
			echo "not ok $n - $name: not found by $program ($built)"
		fi
		table="$table$(printf '# %-24s %-14s %-5s %s' "$name" "$program" "$built" "$said")
"
	done 3<"$work/by"
done
echo "1..$n"
printf '%s' "$table"
exit $failed
