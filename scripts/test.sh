#!/usr/bin/env bash
# Run all tests: style, types, then pytest. Docker tests run where an engine answers or may be installed,
# else the last line says why not; with CI=true they must run. Arguments go to pytest: scripts/test.sh tests/unit
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$PWD/.venv/bin
reason=

may_install() { [ "$(id -u)" = 0 ] && grep -qsE '^ID=(debian|ubuntu)$' /etc/os-release; }

if ! scripts/ensure_docker.sh --check >/dev/null 2>&1; then
    if may_install; then
        scripts/ensure_docker.sh || reason="scripts/ensure_docker.sh could not start an engine"
    else
        reason="no Docker engine with Compose v2 and buildx answers; scripts/ensure_docker.sh says what to do"
    fi
fi
if [ -n "$reason" ] && [ "${CI:-}" = true ]; then
    echo "error: Docker tests are required with CI=true: $reason" >&2
    exit 1
fi

# Without these the tests of tests/docker/registry skip themselves; with CI=true they fail.
if [ -z "$reason" ] && may_install; then
    scripts/ensure_registry.sh || [ "${CI:-}" != true ]
fi

scripts/setup.sh dev
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/pyright" --pythonpath "$bin/python"

# tests/docker skips itself where no engine answers, so a selection may name anything.
status=0
[ -n "$reason" ] || export GYMCTL_REQUIRE_DOCKER=1
"$bin/pytest" "$@" || status=$?
[ -z "$reason" ] || echo "Docker tests skipped: $reason"
exit $status
