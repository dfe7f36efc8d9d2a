#!/usr/bin/env bash
# Checks that unmodified MongoDB clients work with a MongoDB listener: pymongo, the driver of Node, and mongosh.
#
#   scripts/drivers.sh URL        such as mongodb://admin:$(cat data/token)@127.0.0.1:27017/
#
# Prints one line per check, and exits with 1 when one fails. A client whose language is missing, or that cannot be
# downloaded, is skipped with a line that says so. The checks write into databases of their own and drop them.
#
# Environment: DRIVERS_DIR (default ~/.cache/tidemill/drivers), where the clients are installed once (190 MB).
# Needs Python 3.9 or later with venv, and Node 20.19 or later with npm.
set -euo pipefail

PYMONGO=4.20
NODE_DRIVER=7.9.0
MONGOSH=2.12.0
export DRIVERS_DIR=${DRIVERS_DIR:-$HOME/.cache/tidemill/drivers}
CHECKS=$(cd "$(dirname "$0")/../crates/mongo/tests/drivers" && pwd)

[ $# = 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
URL=$1
mkdir -p "$DRIVERS_DIR"
failed=0

# A client is installed if the file `NAME.installed` has the versions that are asked for.
installed() { [ "$(cat "$DRIVERS_DIR/$1.installed" 2>/dev/null)" = "$2" ]; }
note() { echo "$2" > "$DRIVERS_DIR/$1.installed"; }

install_python() {
  installed python "$PYMONGO" && return
  [ -x "$DRIVERS_DIR/venv/bin/pip" ] || python3 -m venv "$DRIVERS_DIR/venv" >&2 || return
  "$DRIVERS_DIR/venv/bin/pip" install --quiet --disable-pip-version-check "pymongo==$PYMONGO.*" >&2 || return
  note python "$PYMONGO"
}

# The optional packages are native code for logins and encryption that these checks do not use.
install_node() {
  installed node "$NODE_DRIVER $MONGOSH" && return
  npm install --prefix "$DRIVERS_DIR" --no-audit --no-fund --no-package-lock --no-save --omit=optional --ignore-scripts \
    --loglevel=error "mongodb@$NODE_DRIVER" "mongosh@$MONGOSH" >&2 || return
  note node "$NODE_DRIVER $MONGOSH"
}

# mongosh gets a home of its own: it keeps logs and a history there, and must not send statistics.
mongosh() {
  local home=$DRIVERS_DIR/home
  if [ ! -f "$home/.mongodb/mongosh/config" ]; then
    mkdir -p "$home/.mongodb/mongosh"
    echo '{"enableTelemetry": false, "updateURL": ""}' > "$home/.mongodb/mongosh/config"
  fi
  HOME=$home "$DRIVERS_DIR/node_modules/.bin/mongosh" "$URL" --quiet --norc "$@"
}

# Types what is no JavaScript, as a user does, and looks at what the shell prints.
type_into_mongosh() {
  local db=check_typed_$$_$RANDOM output status=0
  output=$(mongosh <<EOF_TYPED 2>&1
use $db
db.c.insertMany(Array.from({length: 45}, (_, n) => ({_id: 1000 + n})))
show dbs
show collections
db.c.find().sort({_id: 1})
it
it
db.c.find().explain()
db.stats()
db.c.getIndexes()
db.serverStatus().ok
db.dropDatabase()
exit
EOF_TYPED
  ) || status=$?
  local line expected=("switched to db $db" "$db  *[0-9]" "> c\$" "_id: 1000 " "_id: 1019 " 'Type "it" for more' "_id: 1020 "
    "_id: 1044 " "winningPlan" "objects: .*45" "name: '_id_'" "dropped: '$db'")
  for line in "${expected[@]}"; do
    if ! grep -q -e "$line" <<< "$output"; then echo "mongosh did not print \"$line\"" >&2; status=1; fi
  done
  if [ "$status" = 0 ]; then echo "mongosh: typed commands: ok"; return; fi
  echo "$output" >&2
  echo "mongosh: typed commands: FAILED"
  return 1
}

python=yes node=yes
# Two runs do not install at the same time.
if command -v flock >/dev/null; then exec 9>"$DRIVERS_DIR/lock"; flock 9; fi
if ! command -v python3 >/dev/null; then
  python="no python3: pymongo is not checked"
elif ! install_python; then
  python="pymongo cannot be installed"
fi
if ! command -v npm >/dev/null; then
  node="no npm: the driver of Node and mongosh are not checked"
elif ! install_node; then
  node="the driver of Node and mongosh cannot be installed"
fi
exec 9>&-

if [ "$python" = yes ]; then
  "$DRIVERS_DIR/venv/bin/python" "$CHECKS/check.py" "$URL" || failed=1
else
  echo "skipped: $python"
fi
if [ "$node" = yes ]; then
  node "$CHECKS/check.mjs" "$URL" || failed=1
  mongosh --file "$CHECKS/check.mongosh.js" || failed=1
  type_into_mongosh || failed=1
else
  echo "skipped: $node"
fi
exit "$failed"
