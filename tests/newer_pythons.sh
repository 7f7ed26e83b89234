#!/bin/sh
# Put the Pythons that a Debian machine does not have yet into a folder: tests/newer_pythons.sh FOLDER
# VERSION ... Packages of Debian's next releases are unpacked there with the C library that they need,
# which the interpreters are told to use: nothing is installed but patchelf. Other machines say so, and
# go on without.
set -eu

folder=$1
shift
without() {
    echo "== without Python $versions: $1"
    exit 0
}
versions=$*
[ "$(id -u)" = 0 ] || without "only root can unpack Debian's packages here"
command -v apt-get >/dev/null || without "no apt-get here"
sources=/etc/apt/sources.list.d/debian.sources
[ -f "$sources" ] || without "no Debian here"
mirror=$(sed -n 's/^URIs: *//p' "$sources" | head -n 1)

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial"
: >"$work/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$work/sources"

# An apt that knows that release alone, and thinks that nothing is installed: so it fetches all.
apart() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" \
        -o Dir::Cache::Archives="$work/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none "$@"
}

packages=libstdc++6
for version in "$@"; do packages="$packages python$version-venv python$version-dev"; done
command -v patchelf >/dev/null || apt-get install -y -qq --no-install-recommends patchelf >/dev/null ||
    without "patchelf is not to be had"
apart update || without "the release is not to be had"
# shellcheck disable=SC2086
apart -y install --download-only $packages >/dev/null || without "they are not to be had"
for package in "$work"/archives/*.deb; do dpkg-deb --extract "$package" "$folder"; done

libraries=$folder/usr/lib/x86_64-linux-gnu
loader=$(find "$libraries" "$folder/lib64" -name ld-linux-x86-64.so.2 2>/dev/null | head -n 1)
# Where ensurepip finds pip, and extensions the headers.
sed -i "s#'/usr/share/python-wheels#'$folder/usr/share/python-wheels#; s#'/usr/include#'$folder/usr/include#" \
    "$folder"/usr/lib/python3.*/_sysconfigdata*.py
# Links to the machine's own, which are for its Python.
rm -f "$folder"/usr/lib/python3.*/sitecustomize.py
for version in "$@"; do
    python=$folder/usr/bin/python$version
    patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$python"
    "$python" -c "import ctypes, ensurepip, lzma, sqlite3, ssl, sys; print('==', sys.version)"
done
