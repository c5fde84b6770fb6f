#!/bin/sh
# Inside images: runs a command that installs Python packages; where one has no wheel and nothing compiles it, again
# with compilers.
#
#   RUN ... with-network with-compiler uv pip install ...
#
# The compilers come from the image's own Debian packages and are removed in the same RUN, so no layer holds them.
set -eu

trap 'rm -f /tmp/with_compiler.log' EXIT
"$@" 2>/tmp/with_compiler.log && exit 0
status=$?
cat /tmp/with_compiler.log >&2
grep -q 'Failed to build' /tmp/with_compiler.log || exit "$status"
command -v apt-get >/dev/null || exit "$status"
rm /tmp/with_compiler.log

headers() { python3 -c 'import os, sysconfig; print(os.path.join(sysconfig.get_path("include"), "Python.h"))'; }
apt() { apt-get -qq -o Dpkg::Options::=--force-unsafe-io "$@"; }  # a layer is whole or not there: no fsync
installed() { dpkg-query -W -f '${Package}\n' | sort; }

echo "with-compiler: again, with compilers" >&2
export DEBIAN_FRONTEND=noninteractive
set -- gcc g++ libc6-dev make pkg-config git -- "$@"
[ -e "$(headers)" ] || set -- "python$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-dev" "$@"
packages=
while [ "$1" != -- ]; do packages="$packages $1"; shift; done
shift

installed >/tmp/packages.before
apt update >&2
# shellcheck disable=SC2086  # several words
apt install -y --no-install-recommends $packages >/tmp/apt.log 2>&1 || { tail -n 15 /tmp/apt.log >&2; exit 1; }
status=0
"$@" || status=$?
# What compiled code may be linked with stays.
added=$(installed | comm -13 /tmp/packages.before - | grep -vE '^lib(gomp1|stdc\+\+6|gcc-s1|gfortran5|quadmath0)$') || :
# shellcheck disable=SC2086
[ -z "$added" ] || apt purge -y $added >/dev/null 2>&1 || :
rm -rf /var/lib/apt/lists/* /tmp/packages.before /tmp/apt.log
exit "$status"
