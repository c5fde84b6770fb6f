#!/usr/bin/env bash
# Makes an equivalent of python:3.13-slim from Debian packages, for machines that cannot pull images.
#
#   scripts/python_image.sh [TAG [SUITE]]     default gymctl-python:3.13 trixie; does nothing when the tag exists
#
# SUITE is a Debian release with python3.13: trixie has 3.13.5, sid the newest 3.13.
# The image has python, python3 and pip in /usr/local/bin, useradd, a CA bundle and apt, like the original. It is
# reproducible: made again on a machine from the same packages it has the same id, so what was built on it stays.
# Needs root on Debian or Ubuntu (mmdebstrap). Exit codes: 0 there, 1 failed, 3 the user has to do something.
set -euo pipefail

readonly SUITE=${2:-trixie}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1754697600}  # the day Debian 13 came out

say() { printf 'python image: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
ask_user() {
    local line
    for line in "$@"; do say "$line"; done
    exit 3
}

distribution_id() {
    # shellcheck source=/dev/null
    [ ! -r /etc/os-release ] || (. /etc/os-release && echo "${ID:-}")
}

check_machine() {
    case "$(distribution_id)" in
        debian | ubuntu) ;;
        *) ask_user "this works on Debian and Ubuntu only; pull python:3.13-slim, or name another base image:" \
            "  GYMCTL_BASE_IMAGE=<image with Python 3.11 or later and pip>" ;;
    esac
    [ "$(id -u)" = 0 ] || ask_user "run as root (mmdebstrap unpacks packages):  sudo $0"
}

install_mmdebstrap() {
    local needed=()
    command -v mmdebstrap >/dev/null || needed+=(mmdebstrap)
    [ -r /usr/share/keyrings/debian-archive-keyring.gpg ] || needed+=(debian-archive-keyring)
    [ ${#needed[@]} -gt 0 ] || return 0
    say "installing ${needed[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local apt=(apt-get -qq -oAcquire::Retries=3 -oDPkg::Lock::Timeout=300)
    { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${needed[@]}"; } >"$SCRATCH/apt.log" 2>&1 ||
        { tail -n 15 "$SCRATCH/apt.log" >&2; fail "apt-get install ${needed[*]} failed"; }
}

debian_mirror() {
    # The machine's own Debian mirror where it has one: it may be the only one that can be reached. Nothing
    # otherwise: mmdebstrap then takes its own default.
    if [ "$(distribution_id)" = debian ]; then
        { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true; } | awk '
            /^URIs:/ { uri = $2 }
            /^deb / { for (i = 2; i <= NF && uri == ""; i++) if ($i ~ /^[a-z+]+:/) uri = $i }
            uri ~ /debian/ && uri !~ /security/ && !found { print uri; found = 1 }
            { uri = "" }
            END { exit !found }' || true
    fi
}

root_archive() {
    local target=$1 mirror=() packages=python3,python3-venv
    [ "$SUITE" = trixie ] || packages=python3.13,python3.13-venv  # its `python3` may be a later one
    mapfile -t mirror < <(debian_mirror)
    # --hook commands run with the new root in $1. Byte code is compiled unchecked-hash: it is reproducible and
    # valid whatever the file times are, so no container compiles the standard library again at its start.
    # -B and -f: the modules that compileall itself imports would else keep byte code that depends on file times.
    # shellcheck disable=SC2016  # $1 belongs to the hook
    mmdebstrap --quiet --mode=root --variant=apt --include="$packages,ca-certificates,passwd" \
        --aptopt='Acquire::Retries "3"' --aptopt='APT::Install-Recommends "false"' \
        --aptopt='Acquire::Check-Valid-Until "false"' \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        --customize-hook='chroot "$1" python3.13 -m venv /usr/local' \
        --customize-hook='rm -rf "$1"/usr/share/doc/* "$1"/usr/share/man/* "$1"/usr/share/locale/* "$1"/usr/share/info/*' \
        --customize-hook='find "$1"/usr/lib/python3* "$1"/usr/local/lib -name "*.pyc" -delete' \
        --customize-hook='chroot "$1" python3.13 -B -m compileall -f -q -j 0 --invalidation-mode unchecked-hash /usr/lib/python3.13 /usr/local/lib >/dev/null || true' \
        --customize-hook='rm -f "$1"/etc/resolv.conf "$1"/etc/hostname; rm -rf "$1"/var/log/*' \
        "$SUITE" "$target" "${mirror[@]}" 2>"$SCRATCH/mmdebstrap.log"
}

make_root_archive() {
    root_archive "$1" && return
    # A mirror that is just being refreshed gives lists and packages that do not belong together.
    say "mmdebstrap failed; once more in 20 s"
    sleep 20
    root_archive "$1" || { tail -n 20 "$SCRATCH/mmdebstrap.log" >&2; fail "mmdebstrap failed"; }
}

load_image() {
    # `docker import` would stamp the current time into the image id; a written archive with a fixed date does not.
    local layer=$1 tag=$2 digest created architecture
    architecture=$(docker version --format '{{.Server.Arch}}')
    digest=$(sha256sum "$layer" | cut -d' ' -f1)
    created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    cat >"$SCRATCH/config.json" <<EOT
{"architecture":"$architecture","os":"linux","created":"$created",
"config":{"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin","LANG=C.UTF-8"],"Cmd":["python3"]},
"rootfs":{"type":"layers","diff_ids":["sha256:$digest"]},
"history":[{"created":"$created","created_by":"scripts/python_image.sh"}]}
EOT
    printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["%s"]}]' "$tag" "${layer##*/}" >"$SCRATCH/manifest.json"
    tar -C "$SCRATCH" -c manifest.json config.json "${layer##*/}" | docker load >"$SCRATCH/load.log" 2>&1 ||
        { tail -n 10 "$SCRATCH/load.log" >&2; fail "docker load failed"; }
}

main() {
    local tag=${1:-gymctl-python:3.13} started=$SECONDS
    docker version --format '{{.Server.Version}}' >/dev/null 2>&1 ||
        ask_user "no Docker engine answers; \`make engine\` installs one on Debian and Ubuntu"
    if docker image inspect "$tag" >/dev/null 2>&1; then say "$tag exists"; return; fi
    check_machine
    SCRATCH=$(mktemp -d)
    trap 'rm -rf "$SCRATCH"' EXIT
    install_mmdebstrap
    say "making $tag from packages of Debian $SUITE (about a minute, once)"
    make_root_archive "$SCRATCH/layer.tar"
    load_image "$SCRATCH/layer.tar" "$tag"
    say "$tag is there ($(docker image inspect --format '{{.Size}}' "$tag" | awk '{ printf "%d MB", $1 / 1e6 }'), $((SECONDS - started)) s)"
}

main "$@"
