#!/usr/bin/env bash
# Makes the certificate by which the nodes of a cluster know each other.
#
#   contrib/kubernetes/certificates.sh DIR NODE…
#
# Writes ca.crt, tls.crt and tls.key into DIR, the files of the Secret tidemill-peers, and ca.key, the key of the authority, which stays out of
# the cluster. The certificate has the names of all nodes. A second run with the same DIR keeps the authority and makes another certificate, for
# more nodes or after a year. Needs OpenSSL 3.
set -euo pipefail

fail() { echo "certificates.sh: $*" >&2; exit 1; }

[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
dir=$1
shift
command -v openssl >/dev/null || fail "openssl: not installed"
names=
for node in "$@"; do
  [[ $node =~ ^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$ ]] || fail "\`$node\` is not the name of a node: expected letters, digits, \`-\` and \`.\`, such as tidemill-0"
  names=${names:+$names,}DNS:$node
done

umask 077
mkdir -p "$dir"
log=$(mktemp)
trap 'rm -f "$log" "$dir"/*.new' EXIT
make() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" > "$log" 2>&1 || { tail -3 "$log" >&2; fail "openssl failed"; }; }

if [ ! -e "$dir/ca.key" ]; then
  [ ! -e "$dir/ca.crt" ] || fail "$dir has ca.crt without ca.key: give another directory, or bring the key"
  make -days 3650 -subj "/CN=Authority of the nodes of Tidemill" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$dir/ca.key.new" -out "$dir/ca.crt"
  mv "$dir/ca.key.new" "$dir/ca.key"
fi
make -days 365 -subj "/CN=Nodes of Tidemill" -addext "subjectAltName=$names" -addext "basicConstraints=critical,CA:FALSE" \
  -addext "extendedKeyUsage=serverAuth,clientAuth" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" \
  -keyout "$dir/tls.key.new" -out "$dir/tls.crt.new"
mv "$dir/tls.key.new" "$dir/tls.key"
mv "$dir/tls.crt.new" "$dir/tls.crt"
echo "$dir: ca.crt, tls.crt and tls.key, for $*"
