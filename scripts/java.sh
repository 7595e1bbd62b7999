#!/usr/bin/env bash
# java.sh -- build libfarlog.so for the Java client, then everything under java/ with Maven, tests included.
#   scripts/java.sh                     mvn verify of all modules
#   scripts/java.sh -pl MODULE -am ...  what else Maven shall be given; the goal is verify when none is named
#   scripts/java.sh native              only the library
#   scripts/java.sh find                print the JAVA_HOME that would be taken
# FARLOG_TEST_SHORT=yes: fewer kills and resets, the profile short of java/pom.xml; two modules at a time.
# Exit code 77: skipped, there is no JDK or no Maven here.
set -euo pipefail
cd "$(dirname "$0")/.."

java_least=22
natives=java/farlog-client/target/natives/linux-$(uname -m)

# version_of HOME -- the major version of the JDK there; nothing when there is no compiler.
version_of() {
	[ -x "$1/bin/javac" ] && "$1/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'
}

# find_java -- the first of JAVA_HOME, the javac in PATH and /usr/lib/jvm, newest first, that is new enough.
find_java() {
	local home version
	for home in "${JAVA_HOME:-}" "$(dirname "$(dirname "$(readlink -f "$(command -v javac || echo /none/none)")")")" \
		$(compgen -G '/usr/lib/jvm/*' | sort -rV); do
		version=$(version_of "$home") || continue
		[ "${version:-0}" -ge "$java_least" ] && echo "$home" && return 0
	done
	return 77
}

build_native() {
	mkdir -p "$natives" build
	[ -f build/java-native/build.ninja ] ||
		meson setup build/java-native rdma --buildtype=release -Ddebug=false >build/java-native.log 2>&1 ||
		{ cat build/java-native.log >&2; return 1; }
	ninja -C build/java-native >build/java-native.log 2>&1 || { cat build/java-native.log >&2; return 1; }
	cmp -s build/java-native/libfarlog.so "$natives/libfarlog.so" || {
		cp -L build/java-native/libfarlog.so "$natives/.libfarlog.so.$$" &&
			mv "$natives/.libfarlog.so.$$" "$natives/libfarlog.so"
	}
	if command -v go >/dev/null; then
		go run ./pkg/internal/hardened/check "$natives/libfarlog.so" >&2
	else
		echo "java: $natives/libfarlog.so: not checked for its protections: no Go here" >&2
	fi
}

# tally SINCE -- one line with what the tests of all modules gave, from the reports that are newer than the file SINCE.
tally() {
	find java examples -path '*/target/*-reports*/TEST-*.xml' -newer "$1" -exec grep -h -m1 '<testsuite ' {} + |
		tr ' ' '\n' | sed -n 's/^\(tests\|errors\|skipped\|failures\)="\([0-9]*\)".*/\1 \2/p' |
		awk '{ n[$1] += $2 }
			END {
				if (n["tests"] == 0) exit
				failed = n["errors"] + n["failures"]
				print "java: " n["tests"] - failed - n["skipped"] " passed, " failed + 0 " failed"
			}'
}

skip() {
	echo "java: skipped: $*" >&2
	exit 77
}

home=$(find_java) ||
	skip "no JDK $java_least or later; install openjdk-25-jdk-headless (Debian 12 has none: a JDK 25 from" \
		"adoptium.net) or set JAVA_HOME"
case "${1:-}" in
find)
	echo "$home"
	exit
	;;
native)
	build_native
	exit
	;;
esac
command -v mvn >/dev/null || skip "no mvn; install maven"
mkdir -p build
exec 9>build/java.lock # two builds at once would take each other's classes away
flock 9
build_native
export JAVA_HOME=$home
# Maven itself, javac and javadoc in it, are over before the optimizing compiler pays.
export MAVEN_OPTS=${MAVEN_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC}
goal=verify
for argument in "$@"; do
	case "$argument" in
	clean | validate | compile | test | package | verify | install | *:*) goal= ;;
	esac
done
since=$(mktemp)
trap 'rm -f "$since"' EXIT
result=0
# shellcheck disable=SC2086
mvn -B -q ${FARLOG_TEST_SHORT:+-T 2} -f java/pom.xml "$@" $goal || result=$?
tally "$since"
exit "$result"
