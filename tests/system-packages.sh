#!/bin/sh
# What the tests need beside Python: Chromium and PostgreSQL, from the system's packages.
set -eu

missing=""
for browser in chromium-headless-shell chromium chromium-browser google-chrome none; do
    command -v "$browser" >/dev/null 2>&1 && break
done
[ "$browser" = none ] && missing="$missing chromium"
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null 2>&1 ||
    missing="$missing postgresql"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing$missing for the tests."
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # Chromium without a window starts sooner and keeps the processor less busy.
    shell="$(apt-cache search --names-only '^chromium-headless-shell$')"
    [ -n "$shell" ] && missing="$(echo "$missing" | sed 's/ chromium/ chromium-headless-shell/')"
    # shellcheck disable=SC2086 - a list of packages
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "Not installed:$missing. The tests that need it are left out, or fail where CI=true."
    echo "To have them: sudo apt-get install$missing"
fi
