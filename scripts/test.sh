#!/usr/bin/env bash
# Run all tests: style, types, then pytest. Docker tests run where an engine answers or may be installed;
# with CI=true they must run. Extra arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$PWD/.venv/bin
reason=

may_install() { [ "$(id -u)" = 0 ] && grep -qsE '^ID=(debian|ubuntu)$' /etc/os-release; }

if ! docker info >/dev/null 2>&1; then
    if may_install; then
        scripts/ensure_docker.sh || reason="scripts/ensure_docker.sh could not start an engine"
    else
        reason="no Docker engine answers, and one is installed only for root on Debian or Ubuntu (make engine)"
    fi
fi
if [ -n "$reason" ] && [ "${CI:-}" = true ]; then
    echo "error: Docker tests are required with CI=true: $reason" >&2
    exit 1
fi

"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/pyright" --pythonpath "$bin/python"

status=0
if [ -n "$reason" ]; then
    "$bin/pytest" --ignore=tests/docker "$@" || status=$?
    echo "Docker tests skipped: $reason"
else
    GYMCTL_REQUIRE_DOCKER=1 "$bin/pytest" "$@" || status=$?
fi
exit $status
