#!/usr/bin/env bash
# maven.sh WORK -- what scripts/release-test.sh runs: the client, the appenders and the BOM are installed into a Maven
# repository below WORK, signed by a key that is made there; then a program of somebody else, which names no version but
# the BOM's, is compiled against it, and appends and reads. The last line says how many checks there were.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$1
modules=(farlog-bom farlog-client farlog-log4j2 farlog-logback)
version=$(sed -n 's/.*<version>\([^<]*\)<.*/\1/p' java/farlog-bom/pom.xml | head -1)
repository=$work/repository
installed=$repository/io/github/farlog
checks=0

# check WHAT COMMAND... -- the command succeeds.
check() {
	"${@:2}" || { echo "not so: $1" && exit 1; }
	checks=$((checks + 1))
}

has() { # JAR NAME... has these files
	local name list
	list=$(unzip -Z1 "$1")
	for name in "${@:2}"; do
		grep -q "^$name\$" <<<"$list" || { echo "$1 has no $name" && return 1; }
	done
}

# install_all -- Maven's own plugins and libraries are those of this machine, where they are there.
install_all() {
	mkdir -p "$work/keys"
	chmod 700 "$work/keys"
	export GNUPGHOME=$work/keys
	gpg --batch --quiet --passphrase '' --quick-generate-key 'farlog test <test@farlog.invalid>' ed25519 sign never
	cp -R "$HOME/.m2/repository" "$repository" 2>/dev/null || mkdir "$repository"
	rm -rf "$installed"
	scripts/java.sh -pl "$(IFS=, && echo "${modules[*]}")" -am -DskipTests install \
		-Dmaven.repo.local="$repository" -Dgpg.keyname=test@farlog.invalid
}

# is_published NAME -- with all that Maven Central asks for, each signed.
is_published() {
	local name=$installed/$1/$version/$1-$version file files=(.pom)
	[ "$1" = farlog-bom ] || files+=(.jar -sources.jar -javadoc.jar)
	for file in "${files[@]}"; do
		gpg --batch --quiet --verify "$name$file.asc" "$name$file" 2>"$work/verify.log" ||
			{ echo "$name$file:" && cat "$work/verify.log" && return 1; }
	done
}

# consume -- the example of java/README.md, as a project of its own.
consume() {
	mkdir -p "$work/consumer/src/main/java"
	sed -n '/^```java$/,/^```$/p' java/README.md | sed '/^```/d' >"$work/consumer/src/main/java/Append.java"
	sed "s/VERSION/$version/" scripts/release/consumer.xml >"$work/consumer/pom.xml"
	mvn -B -q -f "$work/consumer/pom.xml" -Dmaven.repo.local="$repository" package >"$work/consumer.log" 2>&1 ||
		{ cat "$work/consumer.log" && return 1; }
	"$JAVA_HOME/bin/java" --enable-native-access=ALL-UNNAMED \
		-cp "$work/consumer/target/classes:$work/consumer/target/libraries/*" Append "mem:$work/java.ring"
}

JAVA_HOME=$(scripts/java.sh find)
export JAVA_HOME
trap 'gpgconf --homedir "$work/keys" --kill all' EXIT
install_all
for name in "${modules[@]}"; do
	check "$name is installed and signed" is_published "$name"
done
check "natives are in the client" has "$installed/farlog-client/$version/farlog-client-$version.jar" \
	"natives/linux-$(uname -m)/libfarlog.so"
consume | tee "$work/appended"
check "the record is appended and read" test "$(grep -cE '^OK at (VISIBLE|PERSISTENT)$|^buy 100$' "$work/appended")" = 2
check "appenders came by the versions of the BOM" \
	ls "$work/consumer/target/libraries/"farlog-{client,log4j2,logback}-"$version.jar"
echo "$checks checks passed"
