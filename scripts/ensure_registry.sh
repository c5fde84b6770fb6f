#!/usr/bin/env bash
# Makes `docker-registry` and `skopeo` available, which the registry tests use. Starts nothing. Safe to run again.
#
#   scripts/ensure_registry.sh           do nothing where both are there; else install them (Debian, Ubuntu; as root)
#   scripts/ensure_registry.sh --check   only report; exit 0 when both are there, 3 when not
#
# Only distribution packages are used. The package's own service is not started: a test runs its own registry.
# Exit codes: 0 there, 1 the installation failed, 3 the user has to do something (it says what).
set -euo pipefail

readonly PROGRAMS=(docker-registry skopeo)

say() { printf 'registry: %s\n' "$*" >&2; }

missing() {
    local program
    for program in "${PROGRAMS[@]}"; do
        command -v "$program" >/dev/null || echo "$program"
    done
}

mapfile -t needed < <(missing)
if [ ${#needed[@]} = 0 ]; then
    [ "${1:-}" != --check ] || say "docker-registry and skopeo are there"
    exit 0
fi
if [ "${1:-}" = --check ]; then
    say "missing: ${needed[*]}"
    exit 3
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "install ${needed[*]} (packages of the same name in Debian and Ubuntu), or run this as root there"
    exit 3
fi

scratch=$(mktemp -d)
policy=
cleanup() {
    rm -rf "$scratch"
    [ -z "$policy" ] || rm -f "$policy"
}
trap cleanup EXIT
# Its service would take port 5000 with a configuration that nobody here asked for.
if [ ! -e /usr/sbin/policy-rc.d ]; then
    policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
options=(-oAcquire::Retries=3 -oDPkg::Lock::Timeout=300 -oDpkg::Options::=--force-confold -oDpkg::Use-Pty=0 -qq)
say "installing ${needed[*]} (distribution packages)"
fetched() {
    apt-get "${options[@]}" update >"$scratch/log" 2>&1 &&
        apt-get "${options[@]}" install -y --no-install-recommends "${needed[@]}" >>"$scratch/log" 2>&1
}
# A list that did not come is no error to `update`, but its packages are then missing: both once more.
fetched || { sleep 20 && fetched; } || {
    tail -n 20 "$scratch/log" >&2
    say "the installation failed"
    exit 1
}
mapfile -t needed < <(missing)
[ ${#needed[@]} = 0 ] || { say "still missing: ${needed[*]}"; exit 1; }
