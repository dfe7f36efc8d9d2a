#!/usr/bin/env bash
# Checks that unmodified clients work with the routes of line protocol and of columns: influxdb-client, the client of
# InfluxDB 1, influxdb3-python, and pyarrow.
#
#   scripts/clients.sh PROGRAM        such as target/release/tidemill
#
# Starts PROGRAM with an app of its own on a free port and in a directory that is deleted at the end. Prints one line per check, and
# exits with 1 when one fails. A client that cannot be installed is skipped with a line that says so.
#
# Environment: CLIENTS_DIR (default ~/.cache/tidemill/clients), where the clients are installed once (300 MB).
# Needs Python 3.9 or later with venv.
set -euo pipefail

declare -A PACKAGES=([influxdb-client]="influxdb-client==1.50.*" [influxdb]="influxdb==5.3.*"
  [influxdb3-python]="influxdb3-python==0.21.*" [pyarrow]="pyarrow==26.*")
export CLIENTS_DIR=${CLIENTS_DIR:-$HOME/.cache/tidemill/clients}
CHECKS=$(cd "$(dirname "$0")/../crates/server/tests/clients" && pwd)

[ $# = 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2; }
PROGRAM=$(realpath "$1")
command -v python3 >/dev/null || { echo "skipped: no python3: no client is checked"; exit 0; }
mkdir -p "$CLIENTS_DIR"

# Two runs do not install at the same time.
if command -v flock >/dev/null; then exec 9>"$CLIENTS_DIR/lock"; flock 9; fi
clients=()
for client in influxdb-client influxdb influxdb3-python pyarrow; do
  mark=$CLIENTS_DIR/$client.installed
  if [ "$(cat "$mark" 2>/dev/null)" != "${PACKAGES[$client]}" ]; then
    [ -x "$CLIENTS_DIR/venv/bin/pip" ] || python3 -m venv "$CLIENTS_DIR/venv" >&2 || true
    if ! "$CLIENTS_DIR/venv/bin/pip" install --quiet --disable-pip-version-check "${PACKAGES[$client]}" >&2; then
      echo "skipped: $client cannot be installed"
      continue
    fi
    echo "${PACKAGES[$client]}" > "$mark"
  fi
  clients+=("$client")
done
exec 9>&-
[ ${#clients[@]} -gt 0 ] || exit 0

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server"; wait "$server" || true; }; rm -rf "$work"' EXIT
mkdir "$work/app"
cp "$CHECKS/streams.rules" "$work/app/"
TIDEMILL_MONGO=off "$PROGRAM" run "$work/app" --data "$work/data" --listen 127.0.0.1:0 > "$work/log" 2>&1 &
server=$!
for _ in $(seq 300); do
  url=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$work/log" | head -1 || true)
  [ -z "$url" ] || break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
[ -n "$url" ] || { echo "the server did not start:"; cat "$work/log"; exit 1; }
status=0
"$CLIENTS_DIR/venv/bin/python" "$CHECKS/check.py" "$url" "$(cat "$work/data/token")" "${clients[@]}" || status=1
[ "$status" = 0 ] || cat "$work/log"
exit "$status"
