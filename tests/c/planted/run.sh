#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Do the tests find what they are for? Each patch here plants one bug in a copy of the core, and says
# which tests, built how, have to fail with it: run.sh [patch ...]
#
#     Caught-by: program plain|asan|tsan [alone|design=NAME]
#
# design: of the pools of the test, see PP_TEST_DESIGN; else the ring.
# alone: the bug shows only if the test has the CPUs to itself. Those run at the end, one by one; all
# others as many side by side as there are CPUs (PP_PLANTED_JOBS).
#
# The core and the tests are compiled once for each way to build them, and the tests have to pass
# then; for a patch, only what includes a file that it changes is compiled again.
#
# Prints TAP and, at the end, the table. A test that hangs has failed as well.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
cc=${CC:-cc}
jobs=${PP_PLANTED_JOBS:-$(nproc)}
# Each test sets up what it is about.
unset PAGEPOOL_CHECKED PP_TEST_DESIGN

# A stress that has to hit a window gets several seeds.
seeds=$(seq 16)
# A race is not lost every time.
tries=$(seq 16)
# A bug is found early or not at all: no failure is worth waiting longer for than this, and three
# times what the test takes without one.
limit=${PP_PLANTED_TIMEOUT:-8}

# ---- build ----

# kind_of program built: how its objects are.
kind_of() {
	[ "$1" = test_faults ] && echo "$2-faults" || echo "$2"
}

# flags kind
flags() {
	case $1 in
	plain*) ;;
	asan*) echo "-fsanitize=address,undefined -fno-sanitize-recover=undefined" ;;
	tsan*) echo "-fsanitize=thread" ;;
	*) echo "how is it built: $1?" >&2; return 1 ;;
	esac
	case $1 in
	*-faults) echo "-DPP_FAULT_INJECTION" ;;
	esac
}

# compile tree kind source object: and, beside it, what it includes.
compile() {
	# shellcheck disable=SC2046 # words
	$cc -std=gnu11 -g1 -O1 -w -D_GNU_SOURCE $(flags "$2") "-I$1/include" "-I$1/csrc" -MMD -c "$3" \
		-o "$4"
}

# link program kind objects output: of the same object in both, that in the directory objects wins.
link() {
	set -- "$1" "$2" "$3" "$4" "$work/same/$2/$1.o" "$work/same/$2"/core-*.o "$work/same/$2"/base-*.o
	output=$4 objects=$3 kind=$2
	shift 4
	for o in "$@"; do
		shift
		[ ! -e "$objects/${o##*/}" ] || o=$objects/${o##*/}
		set -- "$@" "$o"
	done
	# shellcheck disable=SC2046 # words
	$cc $(flags "$kind") "$@" -lpthread -o "$output"
}

# source_of object
source_of() {
	case $1 in
	core-*) echo "csrc/core/${1#core-}" ;;
	base-*) echo "csrc/base/${1#base-}" ;;
	*) echo "tests/c/$1" ;;
	esac | sed 's/o$/c/'
}

# ---- run ----

# fails program built binary log [rounds]: does it?
fails() {
	# One failure is enough.
	export PP_TEST_STOP=1 TSAN_OPTIONS=halt_on_error=1:die_after_fork=0 ASAN_OPTIONS=detect_leaks=1
	seconds=$((limit + 3 * $(cat "$work/out/sound.$1.$2.time" 2>/dev/null || echo 0)))
	again=$tries
	[ "$1" != stress ] || again=$seeds
	for i in $again; do
		status=0
		if [ "$1" = stress ]; then
			PP_TEST_SEED=$i PP_TEST_ROUNDS=8000 timeout "$seconds" "$3" >"$4" 2>&1 || status=$?
		else
			PP_TEST_ROUNDS=${5:-20000} timeout "$seconds" "$3" >"$4" 2>&1 || status=$?
		fi
		[ "$status" = 0 ] || return 0
	done
	return 1
}

# how log: what it said: the first failed check, or the sanitizer's verdict, or how it ended.
how() {
	sed -n -e 's/^# \(.*test[^ ]*\.[ch]:[0-9]*:.*\)/\1/p' -e 's/^# \(.*\(stress\.c\|book\.h\):[0-9]*:.*\)/\1/p' \
		-e 's/^SUMMARY: \(.*\)/\1/p' -e 's/^\(.*: runtime error: .*\)/\1/p' "$1" |
		sed "s|$top/||;s|[^ ]*/csrc/|csrc/|" | head -n 1 | cut -c 1-100 | grep . && return
	if [ "$status" = 124 ]; then
		echo "hangs"
	elif [ "$status" -gt 128 ]; then
		echo "crashes: SIG$(kill -l "$status")"
	else
		awk '/^# / { said = substr($0, 3) } /^not ok/ { exit } END { print said }' "$1"
	fi
}

# ---- the steps, each run by xargs as run.sh --step arguments ----

# kind object
step_same() {
	compile "$top" "$1" "$top/$(source_of "$2")" "$work/same/$1/$2"
}

# program built: without a bug the test passes, else what it finds means nothing.
step_sound() {
	out=$work/out/sound.$1.$2
	link "$1" "$(kind_of "$1" "$2")" /nowhere "$out.bin"
	seeds=1 tries=1 limit=$((limit * 6)) start=$(date +%s)
	if fails "$1" "$2" "$out.bin" "$out.log"; then
		echo "bad without a bug: $1 ($2): $(how "$out.log")" >"$out"
	else
		echo "good without a bug: $1 ($2) passes" >"$out"
	fi
	echo $(($(date +%s) - start)) >"$out.time"
	rm "$out.bin"
}

# name patch: applies and builds it.
step_build() {
	dir=$work/$1
	mkdir "$dir"
	cp -R "$top/csrc" "$top/include" "$dir"
	# No fuzz: what lies around it is as it was when the bug was planted.
	if ! patch -s -F0 -p1 -d "$dir" <"$2" >"$dir/log" 2>&1; then
		sed 's/^/# /' "$dir/log" >"$work/out/$1"
		echo "bad $1: does not apply any more, renew it" >>"$work/out/$1"
		return
	fi
	sed -n 's/^Caught-by: //p' "$2" >"$dir/by"
	while read -r program built how <&3; do
		kind=$(kind_of "$program" "$built")
		mkdir -p "$dir/$kind"
		sed -n 's|^+++ b/||p' "$2" | while read -r file; do
			# Of the path two parts: a file may be included as core/../base/file.
			grep -lF "/$(echo "$file" | sed 's|.*/\([^/]*/[^/]*\)$|\1|')" "$work/same/$kind"/*.d || :
		done | sed 's|.*/||;s|d$|o|' | sort -u | while read -r o; do
			case $o in
			core-* | base-* | "$program.o") ;;
			*) continue ;;
			esac
			[ -e "$dir/$kind/$o" ] || echo "$o"
		done >"$dir/changed"
		while read -r o; do
			source=$(source_of "$o")
			case $source in
			csrc/*) source=$dir/$source ;;
			*) source=$top/$source ;;
			esac
			compile "$dir" "$kind" "$source" "$dir/$kind/$o"
		done <"$dir/changed"
		link "$program" "$kind" "$dir/$kind" "$dir/$program.$built.bin"
	done 3<"$dir/by"
}

# name alone|together: runs those of its tests that are to be run so.
step_run() {
	dir=$work/$1
	while read -r program built alone <&3; do
		export PP_TEST_DESIGN=ring
		case $alone in
		design=*) PP_TEST_DESIGN=${alone#design=} alone= ;;
		esac
		[ "${alone:-together}" = "$2" ] || continue
		if fails "$program" "$built" "$dir/$program.$built.bin" "$dir/log" ${alone:+100000}; then
			echo "good $1: found by $program ($built)"
			said=$(how "$dir/log")
		else
			echo "bad $1: not found by $program ($built)"
			said=SURVIVED
		fi
		printf '# %-26s %-13s %-5s %s\n' "$1" "$program" "$built" "$said" >>"$dir/table"
		rm "$dir/$program.$built.bin"
	done 3<"$dir/by"
}

# name patch
step_plant() {
	step_build "$@"
	[ -e "$work/out/$1" ] || step_run "$1" together >"$work/out/$1"
}

case ${1:-} in
--same | --sound | --plant)
	step=${1#--}
	shift
	"step_$step" "$@"
	exit
	;;
esac

# ---- all of it ----

[ $# -gt 0 ] || set -- "$here"/*.patch
work=$(mktemp -d)
export work
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/out" "$work/same"
n=0
failed=0

# tap file: prints it and counts.
tap() {
	while IFS= read -r line; do
		case $line in
		good\ *) n=$((n + 1)) && echo "ok $n - ${line#good }" ;;
		bad\ *) n=$((n + 1)) failed=1 && echo "not ok $n - ${line#bad }" ;;
		*) echo "$line" ;;
		esac
	done <"$1"
}

echo "TAP version 13"
sed -n 's/^Caught-by: //p' "$@" | cut -d' ' -f1,2 | sort -u >"$work/programs"
while read -r program built; do
	kind=$(kind_of "$program" "$built")
	if [ ! -d "$work/same/$kind" ]; then
		mkdir "$work/same/$kind"
		for source in "$top"/csrc/base/*.c "$top"/csrc/core/*.c; do
			o=${source#"$top"/csrc/}
			echo "$kind $(echo "${o%c}o" | tr / -)"
		done
	fi
	echo "$kind $program.o"
done <"$work/programs" >"$work/objects"
xargs -P "$jobs" -n 2 sh "$0" --same <"$work/objects"
xargs -P "$jobs" -n 2 sh "$0" --sound <"$work/programs"
while read -r program built; do
	tap "$work/out/sound.$program.$built"
done <"$work/programs"

for patch in "$@"; do
	echo "$(basename "$patch" .patch) $patch"
done >"$work/patches"
xargs -P "$jobs" -n 2 sh "$0" --plant <"$work/patches"
while read -r name patch; do
	tap "$work/out/$name"
	if [ -e "$work/$name/by" ] && grep -q ' alone$' "$work/$name/by"; then
		step_run "$name" alone >"$work/out/$name.alone"
		tap "$work/out/$name.alone"
	fi
done <"$work/patches"
echo "1..$n"
while read -r name patch; do
	[ ! -e "$work/$name/table" ] || cat "$work/$name/table"
done <"$work/patches"
exit $failed
