#!/usr/bin/env bash
# Checks that unmodified clients work with the routes of line protocol and of columns, and with Flight SQL: influxdb-client, the
# client of InfluxDB 1, influxdb3-python, pyarrow, ADBC for Python, and the JDBC driver.
#
#   scripts/clients.sh PROGRAM        such as target/release/tidemill
#
# Starts PROGRAM with an app of its own on a free port and in a directory that is deleted at the end. Prints one line per check, and
# exits with 1 when one fails. A client that cannot be installed is skipped with a line that says so.
#
# Environment: CLIENTS_DIR (default ~/.cache/tidemill/clients), where the clients are installed once (400 MB).
# Needs Python 3.9 or later with venv; for the JDBC driver Java 11 or later and Maven.
set -euo pipefail

declare -A PACKAGES=([influxdb-client]="influxdb-client==1.50.*" [influxdb]="influxdb==5.3.*"
  [influxdb3-python]="influxdb3-python==0.21.*" [pyarrow]="pyarrow==26.*"
  [adbc-driver-flightsql]="adbc-driver-flightsql==1.*")
JDBC=flight-sql-jdbc-driver-18.3.0.jar
export CLIENTS_DIR=${CLIENTS_DIR:-$HOME/.cache/tidemill/clients}
CRATES=$(cd "$(dirname "$0")/../crates" && pwd)
CHECKS=$CRATES/server/tests/clients
FLIGHT_CHECKS=$CRATES/flight/tests/clients

[ $# = 1 ] || { sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2; }
PROGRAM=$(realpath "$1")
command -v python3 >/dev/null || { echo "skipped: no python3: no client is checked"; exit 0; }
mkdir -p "$CLIENTS_DIR"

# Two runs do not install at the same time.
if command -v flock >/dev/null; then exec 9>"$CLIENTS_DIR/lock"; flock 9; fi
clients=()
for client in influxdb-client influxdb influxdb3-python pyarrow adbc-driver-flightsql; do
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
if [ ! -f "$CLIENTS_DIR/$JDBC" ] && command -v mvn >/dev/null; then
  mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
    -Dartifact=org.apache.arrow:flight-sql-jdbc-driver:18.3.0 -DoutputDirectory="$CLIENTS_DIR" >&2 || true
fi
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
"$CLIENTS_DIR/venv/bin/python" "$FLIGHT_CHECKS/check.py" "$url" "$(cat "$work/data/token")" "${clients[@]}" || status=1
if [ -f "$CLIENTS_DIR/$JDBC" ] && command -v java >/dev/null; then
  java --add-opens=java.base/java.nio=ALL-UNNAMED -cp "$CLIENTS_DIR/$JDBC" "$FLIGHT_CHECKS/JdbcCheck.java" \
    "${url#http://}" "$(cat "$work/data/token")" 2>"$work/jdbc" || status=1
else
  echo "skipped: flight-sql-jdbc cannot be installed"
fi
[ "$status" = 0 ] || cat "$work/log" "$work"/jdbc*
exit "$status"
