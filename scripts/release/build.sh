#!/usr/bin/env bash
# build.sh OUT -- build everything that a release has from this tree, into OUT, a folder below build: packages,
# archives, jars. The same commit, tools and folder below the tree give the same bytes: scripts/release.sh compares.
# FARLOG_RELEASE_VERSION: in place of scripts/version.sh. SOURCE_DATE_EPOCH: the time in all files, in place of the
# commit's. FARLOG_RELEASE_JAVA=no: without jars and their package.
set -euo pipefail
umask 022
cd "$(dirname "$0")/../.."

# Each is cmd/NAME, docs/reference/NAME.md and deploy/packages/NAME.yaml.
programs=(farlog farlogd farlog-archive farlog-verify)
libraries=(libfarlog0 libfarlog-dev)
[ "${FARLOG_RELEASE_JAVA:-}" = no ] || libraries+=(libfarlog-java)

VERSION=${FARLOG_RELEASE_VERSION:-$(scripts/version.sh)}
export VERSION SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export MAINTAINER="farlog maintainers <farlog@users.noreply.github.com>"
export CGO_ENABLED=1 GOFLAGS="-buildvcs=false -trimpath -mod=readonly ${FARLOG_RELEASE_GOFLAGS:-}" TZ=UTC LC_ALL=C.UTF-8
machine=$(uname -m)
case "$machine" in
x86_64) export ARCH=amd64 ;;
aarch64) export ARCH=arm64 ;;
*) echo "release: $machine: expected x86_64 or aarch64" >&2 && exit 1 ;;
esac
export MULTIARCH=$machine-linux-gnu
out=$1
rm -rf "$out"
mkdir -p "$out"/{stage/{bin,lib,include,pkgconfig/{deb,rpm},man,completion,doc,etc,java},packages,dist}
out=$(cd "$out" && pwd)
stage=$out/stage

tool() {
	go tool -modfile=scripts/release/go.mod "$@"
}

build_programs() {
	local program shell build
	for program in "${programs[@]}"; do
		build=(go build -buildmode=pie)
		# static: it runs on any Linux
		[ "$program" != farlog-verify ] || build=(env CGO_ENABLED=0 go build -buildmode=exe)
		"${build[@]}" -o "$stage/bin/" -ldflags \
			"-s -w -X github.com/farlog/farlog/cmd/internal/version.linked=$VERSION" "./cmd/$program"
		{
			printf '%% %s 1\n\n# NAME\n\n%s - %s\n\n# COMMANDS\n' "$program" "$program" \
				"$("$stage/bin/$program" --help | sed '/^$/q' | tr '\n' ' ' | sed 's/\. .*//')"
			sed 1d "docs/reference/$program.md"
		} >"$out/$program.md"
		tool go-md2man -in "$out/$program.md" | gzip -9n >"$stage/man/$program.1.gz"
		for shell in bash zsh fish; do
			"$stage/bin/$program" completion "$shell" >"$stage/completion/$program.$shell"
		done
	done
}

# build_library -- with both kinds of path, Debian's and that of rpm.
build_library() {
	meson setup "$out/meson" rdma --prefix /usr --libdir lib -Ddebug=false >"$out/meson.log" 2>&1 &&
		DESTDIR=$out/root meson install -C "$out/meson" >>"$out/meson.log" 2>&1 ||
		{ tail -20 "$out/meson.log"; exit 1; }
	cp -a "$out/root/usr/lib/"lib* "$stage/lib/"
	cp -a "$out/root/usr/include/farlog" "$stage/include/"
	strip --strip-unneeded "$stage/lib/"*.so.*.*
	strip --strip-debug --enable-deterministic-archives "$stage/lib/"*.a
	local file
	for file in "$out/root/usr/lib/pkgconfig/"*.pc; do
		sed "s|^libdir=.*|libdir=\${prefix}/lib/$MULTIARCH|" "$file" >"$stage/pkgconfig/deb/$(basename "$file")"
		sed "s|^libdir=.*|libdir=\${prefix}/lib64|" "$file" >"$stage/pkgconfig/rpm/$(basename "$file")"
	done
}

build_java() {
	local version jar name
	version=$(sed -n 's/.*<version>\([^<]*\)<.*/\1/p' java/pom.xml | head -1)
	scripts/java.sh -pl farlog-client,farlog-log4j2,farlog-logback -am -DskipTests package \
		>"$out/java.log" 2>&1 ||
		{ tail -20 "$out/java.log"; exit 1; }
	for name in farlog-client farlog-log4j2 farlog-logback; do
		jar=$name-$version
		cp "java/$name/target/$jar".jar "$stage/java/"
		cp "java/$name/target/$jar"{,-sources,-javadoc}.jar "$out/dist/"
		ln -s "$jar.jar" "$stage/java/$name.jar"
	done
	grep -aq "natives/linux-$machine/libfarlog.so" "$stage/java/farlog-client.jar" ||
		{ echo "release: farlog-client.jar: no library for $machine in it" >&2 && exit 1; }
}

# write_docs -- what Debian wants of each package, and the licences of what is linked in.
write_docs() {
	local name folder
	licences | gzip -9n >"$out/licences.gz"
	for name in "${programs[@]}" "${libraries[@]}"; do
		folder=$stage/doc/$name
		mkdir -p "$folder"
		cp deploy/packages/copyright "$folder/"
		gzip -9n <CHANGELOG.md >"$folder/changelog.gz"
		gzip -9n >"$folder/changelog.Debian.gz" <<-END
			$name (${VERSION/-/\~}-1) unstable; urgency=medium

			  * What changed: /usr/share/doc/$name/changelog.gz

			 -- $MAINTAINER  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
		END
		case " ${programs[*]} " in *" $name "*) cp "$out/licences.gz" "$folder/" ;; esac
	done
	for name in control target drain host replica; do
		sed "s/ROLE/$name/g" deploy/packages/etc/role.env >"$stage/etc/$name.env"
	done
	cp deploy/packages/etc/archive.env "$stage/archive.env"
}

# licences -- of all Go modules in the programs.
licences() {
	local module folder file
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' \
		"${programs[@]/#/./cmd/}" | sort -u | while read -r module version folder; do
		for file in "$folder"/LICEN[CS]E* "$folder"/COPYING* "$folder"/NOTICE*; do
			[ -f "$file" ] || continue
			printf '== %s %s: %s\n\n' "$module" "$version" "$(basename "$file")"
			cat "$file"
			echo
		done
	done
}

# newest_glibc -- the newest version of glibc that what has C in it asks for.
newest_glibc() {
	objdump -T "$stage/bin/"{farlog,farlogd} "$stage/lib/"*.so.*.* | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' |
		sort -Vu | tail -1
}

build_packages() {
	local name kind
	cp -R deploy/packages deploy/systemd deploy/grafana deploy/prometheus "$out/"
	GLIBC=$(newest_glibc)
	[ -n "$GLIBC" ] || { echo "release: no version of glibc in $stage: expected one" >&2 && exit 1; }
	export GLIBC PACKAGE_VERSION=${VERSION/-/\~}-1
	local nfpm
	nfpm=$(tool -n nfpm)
	for name in "${programs[@]}" "${libraries[@]}"; do
		for kind in deb rpm; do
			(cd "$out" && "$nfpm" package -f "packages/$name.yaml" -p "$kind" -t dist/ >"$name.$kind.log" 2>&1) ||
				{ cat "$out/$name.$kind.log" && exit 1; }
		done
	done
}

# archive NAME FOLDER -- a tar whose bytes depend on what is in it only.
archive() {
	tar -C "$2" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--transform "s|^\.|$1|" -cf - . | gzip -9n >"$out/dist/$1.tar.gz"
}

scripts/setup.sh build ctest
build_programs
build_library
[ "${FARLOG_RELEASE_JAVA:-}" = no ] || build_java
write_docs
build_packages
mkdir -p "$out/archive"
cp -a "$stage/bin" "$stage/lib" "$stage/include" LICENSE CHANGELOG.md "$out/archive/"
cp "$out/licences.gz" "$out/archive/"
cp -R deploy/systemd "$out/archive/"
archive "farlog-$VERSION-linux-$machine" "$out/archive"
go run ./pkg/internal/release/sbom -version "$VERSION" "${programs[@]/#/$stage/bin/}" \
	>"$out/dist/farlog-$VERSION.spdx.json"
echo "release: $(find "$out/dist" -type f | wc -l) files in $out/dist"
