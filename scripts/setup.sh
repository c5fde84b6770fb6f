#!/usr/bin/env bash
# Make .venv with gymctl in it. Usage: scripts/setup.sh run|dev. Does nothing when it is up to date.
# Exit codes: 0 ready, 1 an installation failed, 2 wrong usage, 3 the user has to do something (it says what).
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(pwd -P)  # an environment holds the path without symbolic links

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
ask_user() { say "$*"; exit 3; }

flavour=${1:-}
case $flavour in
    run) target='.' ;;
    dev) target='.[dev]' ;;
    *) say "usage: scripts/setup.sh run|dev"; exit 2 ;;
esac

# A working environment holds the stamp of the files that decided what is in it.
stamp=.venv/.gymctl-$flavour
inputs=$(cat pyproject.toml scripts/constraints.txt scripts/setup.sh | sha256sum | cut -d' ' -f1)
if [ -x .venv/bin/gymctl ] && [ "$(cat "$stamp" 2>/dev/null)" = "$inputs $root" ]; then
    exit 0
fi

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install() {
    # apt's own words matter only when it fails.
    say "installing $*"
    local log status=0 apt=(apt-get -qq -oAcquire::Retries=3 -oDPkg::Lock::Timeout=300)
    log=$(mktemp)
    { DEBIAN_FRONTEND=noninteractive "${apt[@]}" update || true
      DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "$@"; } >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || tail -n 10 "$log" >&2
    rm -f "$log"
    [ "$status" = 0 ] || fail "apt-get install $* failed"
    hash -r
}

find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python3.14; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

too_old() { echo "Python 3.11 or newer is needed, $(python3 -V 2>/dev/null || echo none) was found: install it and run this again"; }

python=$(find_python) || {
    may_install || ask_user "$(too_old)"
    install python3 python3-venv
    python=$(find_python) || ask_user "$(too_old)"
}

# Debian and Ubuntu ship the part of venv that brings pip in a package of its own.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=${python##*/}-venv
    may_install || ask_user "Python's venv module is missing. Install it, then run this again: sudo apt install $package"
    install "$package"
fi

say "installing gymctl into .venv ($("$python" -V))"
# A moved or broken environment is made anew: its scripts hold absolute paths.
if ! .venv/bin/python -c 'import sys' 2>/dev/null || ! grep -qsF "$root/.venv" .venv/bin/activate; then
    rm -rf .venv
    "$python" -m venv .venv || fail "$python -m venv failed"
fi
# uv trusts what the system trusts, as pip does here, and finds the index that pip is told of.
if [ -z "${SSL_CERT_FILE:-}" ] && [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
fi
if [ -n "${PIP_INDEX_URL:-}" ] && [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
    export UV_DEFAULT_INDEX=$PIP_INDEX_URL
fi
# Of some hundred files one may fail: each is asked for again, and one that comes slowly is waited for.
export UV_HTTP_RETRIES=${UV_HTTP_RETRIES:-5} UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-120}
.venv/bin/uv --version >/dev/null 2>&1 ||
    .venv/bin/python -m pip install -q --disable-pip-version-check --retries 8 --timeout 60 --constraint scripts/constraints.txt uv ||
    fail "uv could not be installed; is the package index reachable? (PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT)"
.venv/bin/uv pip install -q --python .venv/bin/python --constraint scripts/constraints.txt -e "$target" ||
    fail "the packages could not be installed; is the package index reachable? (UV_DEFAULT_INDEX, HTTPS_PROXY, SSL_CERT_FILE)"
printf '%s %s\n' "$inputs" "$root" >"$stamp"
