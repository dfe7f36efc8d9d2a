#!/usr/bin/env bash
# Checks that unmodified clients work with the routes of line protocol, of InfluxQL and of columns: influxdb-client, the client of
# InfluxDB 1, influxdb3-python, and pyarrow; that clients of PostgreSQL read the catalogs and write events: psql, psycopg, SQLAlchemy, asyncpg, pgjdbc; and that
# clients of Flight SQL work: pyarrow, ADBC for Python, and the JDBC driver; that the SDK of MCP for Python calls tools; that telemetry is stored: the SDK of OpenTelemetry for
# Python over HTTP and gRPC, Prometheus by remote write 1.0, its client library for Go by 2.0.
#
#   scripts/clients.sh PROGRAM        such as target/release/tidemill
#
# Starts PROGRAM with an app of its own on a free port and in a directory that is deleted at the end. Prints one line per check, and
# exits with 1 when one fails. A client that cannot be installed is skipped with a line that says so.
#
# Environment: CLIENTS_DIR (default ~/.cache/tidemill/clients), where the clients are installed once (600 MB).
# Needs Python 3.9 or later with venv; psql, Java 11 or later and Maven, Debian or PROMETHEUS (the program of Prometheus), and Go, for
# those that need them.
set -euo pipefail

declare -A PACKAGES=([influxdb-client]="influxdb-client==1.50.*" [influxdb]="influxdb==5.3.*"
  [influxdb3-python]="influxdb3-python==0.21.*" [pyarrow]="pyarrow==26.*"
  [sqlalchemy]="SQLAlchemy==2.0.* psycopg[binary]==3.3.*" [asyncpg]="asyncpg==0.31.*"
  [adbc-driver-flightsql]="adbc-driver-flightsql==1.*" [mcp]="mcp==2.3.*"
  [opentelemetry]="opentelemetry-sdk==1.45.* opentelemetry-exporter-otlp-proto-http==1.45.* opentelemetry-exporter-otlp-proto-grpc==1.45.*")
# the library of remote write has no versions
REMOTE_WRITE=v0.0.0-20261019101427-217707f26b14
PGJDBC=42.7.8
JDBC=flight-sql-jdbc-driver-18.3.0.jar
export CLIENTS_DIR=${CLIENTS_DIR:-$HOME/.cache/tidemill/clients}
CRATES=$(cd "$(dirname "$0")/../crates" && pwd)
CHECKS=$CRATES/server/tests/clients
POSTGRES_CHECKS=$CRATES/postgres/tests/clients
FLIGHT_CHECKS=$CRATES/flight/tests/clients

[ $# = 1 ] || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
PROGRAM=$(realpath "$1")
command -v python3 >/dev/null || { echo "skipped: no python3: no client is checked"; exit 0; }
mkdir -p "$CLIENTS_DIR"

# Two runs do not install at the same time.
if command -v flock >/dev/null; then exec 9>"$CLIENTS_DIR/lock"; flock 9; fi
clients=() postgres_clients=() telemetry_clients=()
for client in influxdb-client influxdb influxdb3-python pyarrow sqlalchemy asyncpg adbc-driver-flightsql mcp opentelemetry; do
  mark=$CLIENTS_DIR/$client.installed
  if [ "$(cat "$mark" 2>/dev/null)" != "${PACKAGES[$client]}" ]; then
    [ -x "$CLIENTS_DIR/venv/bin/pip" ] || python3 -m venv "$CLIENTS_DIR/venv" >&2 || true
    if ! "$CLIENTS_DIR/venv/bin/pip" install --quiet --disable-pip-version-check ${PACKAGES[$client]} >&2; then
      echo "skipped: $client cannot be installed"
      continue
    fi
    echo "${PACKAGES[$client]}" > "$mark"
  fi
  case $client in
    sqlalchemy | asyncpg) postgres_clients+=("$client");;
    opentelemetry) telemetry_clients+=("$client");;
    *) clients+=("$client");;
  esac
done
if command -v psql >/dev/null; then postgres_clients+=(psql); else echo "skipped: psql cannot be installed"; fi
jar=$CLIENTS_DIR/postgresql.jar
if [ "$(cat "$CLIENTS_DIR/pgjdbc.installed" 2>/dev/null)" != "$PGJDBC" ]; then
  at=https://repo1.maven.org/maven2/org/postgresql/postgresql/$PGJDBC/postgresql-$PGJDBC.jar
  if curl --silent --show-error --fail --max-time 300 --output "$jar.part" "$at" >&2; then
    mv "$jar.part" "$jar"
    echo "$PGJDBC" > "$CLIENTS_DIR/pgjdbc.installed"
  fi
fi
if command -v javac >/dev/null && [ -f "$jar" ]; then postgres_clients+=(pgjdbc); else echo "skipped: pgjdbc cannot be installed"; fi
if [ ! -f "$CLIENTS_DIR/$JDBC" ] && command -v mvn >/dev/null; then
  mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
    -Dartifact=org.apache.arrow:flight-sql-jdbc-driver:18.3.0 -DoutputDirectory="$CLIENTS_DIR" >&2 || true
fi
export PROMETHEUS=${PROMETHEUS:-$(command -v prometheus || echo "$CLIENTS_DIR/prometheus/usr/bin/prometheus")}
if [ ! -x "$PROMETHEUS" ] && command -v apt-get >/dev/null; then
  # the package is unpacked, not installed: it would start a service
  rm -rf "$CLIENTS_DIR/prometheus" && mkdir -p "$CLIENTS_DIR/prometheus/package"
  (cd "$CLIENTS_DIR/prometheus/package" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb ..) >&2 || true
fi
if [ -x "$PROMETHEUS" ]; then telemetry_clients+=(prometheus); else echo "skipped: prometheus cannot be installed"; fi
PATH=$PATH:/usr/local/go/bin
remote_write=$CLIENTS_DIR/remote-write
if command -v go >/dev/null && ! cmp -s "$CHECKS/remote_write/main.go" "$remote_write/main.go"; then
  rm -rf "$remote_write" && mkdir "$remote_write" && cp "$CHECKS/remote_write/main.go" "$remote_write/"
  (cd "$remote_write" && go mod init remote-write && go get "github.com/prometheus/client_golang/exp@$REMOTE_WRITE" \
    && go mod tidy && go build -o remote-write .) >&2 || rm -rf "$remote_write"
fi
[ -x "$remote_write/remote-write" ] || echo "skipped: client_golang cannot be installed"
exec 9>&-
[ $((${#clients[@]} + ${#postgres_clients[@]} + ${#telemetry_clients[@]})) -gt 0 ] || exit 0

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server"; wait "$server" || true; }; rm -rf "$work"' EXIT
mkdir "$work/app"
cp "$CHECKS/streams.rules" "$work/app/"
cp "$POSTGRES_CHECKS/streams.rules" "$work/app/catalogs.rules"
"$PROGRAM" declare opentelemetry > "$work/app/opentelemetry.rules"
"$PROGRAM" declare remote-write > "$work/app/remote-write.rules"
TIDEMILL_MONGO=off "$PROGRAM" run "$work/app" --data "$work/data" --listen 127.0.0.1:0 --postgres 127.0.0.1:0 --mcp \
  > "$work/log" 2>&1 &
server=$!
for _ in $(seq 300); do
  url=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$work/log" | head -1 || true)
  [ -z "$url" ] || break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
[ -n "$url" ] || { echo "the server did not start:"; cat "$work/log"; exit 1; }
status=0
token=$(cat "$work/data/token")
for _ in $(seq 300); do
  postgres=$(grep -o '@127\.0\.0\.1:[0-9]*/tidemill' "$work/log" | head -1 | tr -d @ | cut -d/ -f1 || true)
  [ -z "$postgres" ] || break
  sleep 0.1
done
[ -n "$postgres" ] || { echo "the server does not listen for clients of PostgreSQL:"; cat "$work/log"; exit 1; }
python=$CLIENTS_DIR/venv/bin/python
"$python" "$CHECKS/check.py" "$url" "$token" "${clients[@]}" || status=1
"$python" "$FLIGHT_CHECKS/check.py" "$url" "$token" "${clients[@]}" || status=1
[ ${#telemetry_clients[@]} = 0 ] || "$python" "$CHECKS/telemetry.py" "$url" "$token" "${telemetry_clients[@]}" || status=1
[ ! -x "$remote_write/remote-write" ] || "$remote_write/remote-write" "$url" "$token" || status=1
"$python" "$POSTGRES_CHECKS/check.py" "$postgres" "$token" "$CLIENTS_DIR" "${postgres_clients[@]}" || status=1
if [ -f "$CLIENTS_DIR/$JDBC" ] && command -v java >/dev/null; then
  java --add-opens=java.base/java.nio=ALL-UNNAMED -cp "$CLIENTS_DIR/$JDBC" "$FLIGHT_CHECKS/JdbcCheck.java" \
    "${url#http://}" "$token" 2>"$work/jdbc" || status=1
else
  echo "skipped: flight-sql-jdbc cannot be installed"
fi
[ "$status" = 0 ] || cat "$work/log" "$work"/jdbc*
exit "$status"
