#!/usr/bin/env bash
# Makes `docker`, `docker compose` and `docker buildx` work with an engine that answers. Safe to run again.
#
#   scripts/ensure_docker.sh           do nothing where they work; else install (Debian 12/13, Ubuntu; as root) and start
#   scripts/ensure_docker.sh --check   only report; exit 0 when all three work, 3 when not
#
# Only distribution packages are used. Debian 12 has no Compose v2 and an old engine: it borrows Debian 13's
# packages through a throw-away apt configuration, so /etc/apt stays as it is.
# Exit codes: 0 works, 1 an installation or a start failed, 3 the user has to do something (it says what).
set -euo pipefail

readonly LOG=${GYMCTL_DOCKERD_LOG:-/var/log/dockerd.log}
readonly PATIENCE=${GYMCTL_DOCKERD_WAIT:-120}
readonly DAEMON_JSON=/etc/docker/daemon.json

say() { printf 'docker: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
ask_user() {
    local line
    for line in "$@"; do say "$line"; done
    exit 3
}

engine_answers() { timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
has_compose() { docker compose version >/dev/null 2>&1; }
has_buildx() { docker buildx version >/dev/null 2>&1; }
all_work() { engine_answers && has_compose && has_buildx; }

report() {
    say "engine $(docker version --format '{{.Server.Version}} (API {{.Server.APIVersion}})')," \
        "compose $(docker compose version --short), buildx $(docker buildx version | cut -d' ' -f2)"
}

missing() {
    command -v docker >/dev/null || echo "the docker command"
    engine_answers || echo "an engine that answers"
    has_compose || echo "Compose v2 (docker compose)"
    has_buildx || echo "buildx (docker buildx)"
}

distribution() {
    # "debian 12", "ubuntu 24" or "other": derivatives have other package names, so ID alone counts.
    local file=$1 id="" version_id=""
    if [ -r "$file" ]; then
        # shellcheck source=/dev/null
        id=$(. "$file" && echo "${ID:-}")
        # shellcheck source=/dev/null
        version_id=$(. "$file" && echo "${VERSION_ID:-}")
    fi
    case "$id ${version_id%%.*}" in
        "debian 12" | "debian 13" | "ubuntu "*) echo "$id ${version_id%%.*}" ;;
        *) echo other ;;
    esac
}

packages_needed() {
    local distro=$1
    if [ "${distro%% *}" = ubuntu ]; then
        command -v docker >/dev/null && { command -v dockerd >/dev/null || engine_answers; } || echo docker.io
        has_compose || echo docker-compose-v2
        has_buildx || echo docker-buildx
    else
        command -v dockerd >/dev/null || engine_answers || printf '%s\n' docker.io iptables
        command -v docker >/dev/null || echo docker-cli
        has_compose || echo docker-compose
        has_buildx || echo docker-buildx
    fi
}

debian_mirror() {
    # The Debian archive of the machine's own apt configuration (either form of source file), not the security one.
    # Read from the files: apt itself knows its sources only after an update.
    { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true; } | awk '
        /^URIs:/ { uri = $2 }
        /^deb / { for (i = 2; i <= NF && uri == ""; i++) if ($i ~ /^[a-z+]+:/) uri = $i }
        uri ~ /debian/ && uri !~ /security/ && !found { print uri; found = 1 }
        { uri = "" }
        END { exit !found }'
}

borrow_from_debian_13() {
    # Fills $1 with an apt configuration of its own: this machine's sources, Debian 13 for the named packages only.
    local dir=$1 mirror
    mirror=$(debian_mirror) || fail "no Debian archive in this machine's apt configuration (/etc/apt/sources.list.d)"
    mkdir -p "$dir/sources" "$dir/preferences" "$dir/lists/partial"
    chmod 755 "$dir" "$dir/sources" "$dir/preferences" "$dir/lists" "$dir/lists/partial"
    cp /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list "$dir/sources/" 2>/dev/null || true
    [ ! -s /etc/apt/sources.list ] || cp /etc/apt/sources.list "$dir/sources/machine.list"
    cat >"$dir/sources/debian13.sources" <<EOT
Types: deb
URIs: $mirror
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
EOT
    cat >"$dir/preferences/debian13" <<'EOT'
Package: *
Pin: release n=trixie
Pin-Priority: 1

Package: docker.io docker-cli docker-compose docker-buildx containerd
Pin: release n=trixie
Pin-Priority: 990
EOT
    # Debian 12 keeps its own runc, tini and iptables: Debian 13's need a newer libc.
    printf '%s\n' "-oDir::Etc::sourcelist=/dev/null" "-oDir::Etc::sourceparts=$dir/sources" \
        "-oDir::Etc::preferencesparts=$dir/preferences" "-oDir::State::lists=$dir/lists"
}

without_proxy() {
    # docker-proxy ends for good near 3,300 connections on one port; the kernel's own forwarding does not.
    # Written before the installation, which may start the daemon; a machine with settings of its own keeps them.
    if ! command -v dockerd >/dev/null && [ ! -e "$DAEMON_JSON" ]; then
        mkdir -p "${DAEMON_JSON%/*}"
        printf '{\n  "userland-proxy": false\n}\n' >"$DAEMON_JSON"
    fi
}

install_packages() {
    local distro=$1
    shift
    local options=(-oAcquire::Retries=3 -oDPkg::Lock::Timeout=300 -oDpkg::Options::=--force-confold -oDpkg::Use-Pty=0)
    export DEBIAN_FRONTEND=noninteractive
    if [ "$distro" = "debian 12" ]; then
        mapfile -t borrowed < <(borrow_from_debian_13 "$SCRATCH")
        [ ${#borrowed[@]} -gt 0 ] || exit 1  # it has said why
        options+=("${borrowed[@]}")
    fi
    say "installing $* (distribution packages)"
    # A list that did not come is no error to `update`, but its packages are then missing: both once more.
    fetched "$@" || { sleep 20 && fetched "$@"; } || { tail -n 20 "$SCRATCH/apt.log" >&2; fail "apt-get failed"; }
    hash -r
}

fetched() {
    apt-get "${options[@]}" -qq update >"$SCRATCH/apt.log" 2>&1 &&
        apt-get "${options[@]}" -qq install -y --no-install-recommends "$@" >>"$SCRATCH/apt.log" 2>&1
}

mount_cgroups() {
    # A machine without an init system may have no controllers mounted; the engine needs them.
    ! grep -q ' /sys/fs/cgroup' /proc/mounts || return 0
    if grep -q cgroup2 /proc/filesystems && mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null; then return 0; fi
    mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
    local controller
    awk 'NR > 1 && $4 == 1 { print $1 }' /proc/cgroups | while read -r controller; do
        mkdir -p "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" "$controller" "/sys/fs/cgroup/$controller" || rmdir "/sys/fs/cgroup/$controller"
    done
}

remove_stale_pid_files() {
    # After a kill -9 the number in the file may belong to another process, and the daemon then refuses to start.
    local file pid
    for file in /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
        pid=$(cat "$file" 2>/dev/null || true)
        [ -z "$pid" ] || grep -qaE 'dockerd|containerd' "/proc/$pid/cmdline" 2>/dev/null || rm -f "$file"
    done
}

start_engine() {
    case "${DOCKER_HOST:-}" in
        "" | unix:///var/run/docker.sock | unix:///run/docker.sock) ;;
        *) ask_user "DOCKER_HOST=$DOCKER_HOST does not answer; start that engine, or unset DOCKER_HOST." ;;
    esac
    if [ -d /run/systemd/system ]; then
        say "starting docker.service"
        systemctl enable --now docker >/dev/null 2>&1 || true
        wait_for_engine "" || { journalctl -u docker -n 15 --no-pager >&2 || true; fail "the engine did not answer"; }
        return
    fi
    mount_cgroups
    remove_stale_pid_files
    local flags=(--userland-proxy=false)
    ! grep -qs userland-proxy "$DAEMON_JSON" || flags=()  # a setting in both places stops the daemon
    say "starting dockerd (log: $LOG)"
    local before
    touch "$LOG"
    before=$(wc -l <"$LOG")
    # Its own session and no open lock: it must outlive this script and not hold the lock of the next run.
    setsid nohup dockerd "${flags[@]}" >>"$LOG" 2>&1 </dev/null 9>&- &
    local pid=$!
    wait_for_engine "$pid" && return
    tail -n "+$((before + 1))" "$LOG" | grep -vE 'level=(info|debug)' | tail -n 8 >&2 || true
    kill -0 "$pid" 2>/dev/null || fail "dockerd ended; the reason is above and in $LOG"
    fail "dockerd did not answer within ${PATIENCE} s (log: $LOG)"
}

wait_for_engine() {
    local pid=$1 deadline=$((SECONDS + PATIENCE))
    until engine_answers; do
        [ -z "$pid" ] || kill -0 "$pid" 2>/dev/null || return 1
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}

explain() {
    local lines=("missing: $(missing | paste -sd, | sed 's/,/, /g')")
    case "$(distribution /etc/os-release)" in
        other) lines+=(
            "install Docker Engine 20.10 or later with Compose v2 and buildx for your system:"
            "  https://docs.docker.com/engine/install/  (on macOS and Windows: Docker Desktop)"
            "then run this again; \`docker info\` must answer for your user.") ;;
        *) if [ "$(id -u)" = 0 ]; then lines+=("this installs and starts it:  $0")
           else lines+=("this installs and starts it:  sudo $0"); fi ;;
    esac
    if [ "$(id -u)" != 0 ] && [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
        lines=("your user may not use /var/run/docker.sock:  sudo usermod -aG docker $(id -un)  (then log in again)"
            "if no engine runs behind it:" "${lines[@]}")
    fi
    ask_user "${lines[@]}"
}

main() {
    local check=no
    case "${1:-}" in
        "") ;;
        --check) check=yes ;;
        *) say "usage: $0 [--check]"; exit 2 ;;
    esac
    if all_work; then report; exit 0; fi
    local distro
    distro=$(distribution /etc/os-release)
    if [ "$check" = yes ] || [ "$distro" = other ] || [ "$(id -u)" != 0 ]; then explain; fi

    mkdir -p /run/lock
    exec 9>/run/lock/gymctl-ensure-docker
    ! command -v flock >/dev/null || flock 9  # two runs at once: the second finds the work done
    if all_work; then report; exit 0; fi
    SCRATCH=$(mktemp -d)
    trap 'rm -rf "$SCRATCH"' EXIT
    local needed=()
    mapfile -t needed < <(packages_needed "$distro")
    if [ ${#needed[@]} -gt 0 ]; then
        engine_answers || without_proxy
        install_packages "$distro" "${needed[@]}"
    fi
    engine_answers || start_engine
    all_work || fail "still missing: $(missing | paste -sd, | sed 's/,/, /g')"
    report
}

[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"
