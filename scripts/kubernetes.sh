#!/usr/bin/env bash
# Checks the manifests in contrib/kubernetes: renders the overlays, alone and with all components, and compares them with the schemas of
# Kubernetes and of the custom resources, with each other, and with the source and the page about them.
#
#   scripts/kubernetes.sh [--program PROGRAM] [DIR]
#
# With PROGRAM, such as target/release/tidemill, its options and variables are compared as well, and it checks the app. DIR has the manifests,
# contrib/kubernetes by default: check a changed copy by it. Prints a line per overlay, and one for each thing that is wrong.
# Exit code 1: something is wrong. Exit code 3: a tool cannot be had here; the message says why.
#
# Environment: KUBERNETES_DIR (default ~/.cache/tidemill/kubernetes), where kubeconform, kustomize and the schemas are made once (75 MB).
# Needs Go 1.26 or later, and Python 3 with venv.
set -euo pipefail

KUBECONFORM=v0.8.0
# that of kubectl 1.35
KUSTOMIZE=v5.7.1
SCHEMAS=v1.35.0
CERT_MANAGER=v1.19.1
PROMETHEUS_OPERATOR=v0.85.0
PYYAML="PyYAML==6.0.*"
DIR=${KUBERNETES_DIR:-$HOME/.cache/tidemill/kubernetes}
ROOT=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/local/go/bin

missing() { echo "kubernetes.sh: $*" >&2; exit 3; }

program=
if [ "${1:-}" = --program ]; then
  program=$(realpath "${2:?which program?}")
  shift 2
fi
case ${1:-} in -*) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2;; esac
manifests=$(realpath "${1:-$ROOT/contrib/kubernetes}")
[ -d "$manifests/base" ] || { echo "kubernetes.sh: $manifests: expected a directory with base, overlays and components" >&2; exit 2; }

# --- Installation ---

install_go() { # program, version, package: builds a program from its Go module
  local name=$1 version=$2 package=$3 build="$DIR/build-$1"
  [ ! -x "$DIR/$name-$version" ] || return 0
  echo "kubernetes.sh: installing $name $version" >&2
  mkdir -p "$build"
  GOBIN=$build go install "$package@$version" > "$DIR/install-$name.log" 2>&1 < /dev/null \
    || { tail -3 "$DIR/install-$name.log" >&2; missing "$package@$version cannot be built, see $DIR/install-$name.log"; }
  mv "$build/$name" "$DIR/$name-$version"
  rm -rf "$build"
}

download() { # module with its version: prints its directory, which is removed at the end
  GOMODCACHE=$DIR/modules GOFLAGS=-modcacherw go mod download -json "$1" 2> "$DIR/download.log" < /dev/null \
    | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p' | grep . || { tail -3 "$DIR/download.log" >&2; missing "$1 cannot be downloaded"; }
}

make_schemas() { # directory
  local kubernetes cert_manager operator
  echo "kubernetes.sh: making the schemas of Kubernetes $SCHEMAS" >&2
  kubernetes=$(download "k8s.io/kubernetes@$SCHEMAS")
  cert_manager=$(download "github.com/cert-manager/cert-manager@$CERT_MANAGER")
  operator=$(download "github.com/prometheus-operator/prometheus-operator@$PROMETHEUS_OPERATOR")
  rm -rf "$1.new"
  "$DIR/venv/bin/python" "$ROOT/scripts/kubernetes/schemas.py" "$1.new" "$kubernetes/api/openapi-spec/swagger.json" \
    "$cert_manager"/deploy/crds/cert-manager.io_{issuers,certificates}.yaml \
    "$operator/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"
  rm -rf "$DIR/modules"
  mv "$1.new" "$1"
}

command -v go >/dev/null || missing "go: not installed; install Go 1.26 or later from https://go.dev/dl"
command -v python3 >/dev/null || missing "python3: not installed"
mkdir -p "$DIR"
# Two runs do not install at the same time.
if command -v flock >/dev/null; then exec 9>"$DIR/lock"; flock 9; fi
install_go kubeconform "$KUBECONFORM" github.com/yannh/kubeconform/cmd/kubeconform
install_go kustomize "$KUSTOMIZE" sigs.k8s.io/kustomize/kustomize/v5
if [ "$(cat "$DIR/venv.installed" 2>/dev/null)" != "$PYYAML" ]; then
  { python3 -m venv "$DIR/venv" && "$DIR/venv/bin/pip" install --quiet --disable-pip-version-check "$PYYAML"; } > "$DIR/install-venv.log" 2>&1 \
    || { tail -3 "$DIR/install-venv.log" >&2; missing "$PYYAML cannot be installed, see $DIR/install-venv.log"; }
  echo "$PYYAML" > "$DIR/venv.installed"
fi
# a change of the script makes others
schemas=$DIR/schemas-$SCHEMAS-$CERT_MANAGER-$PROMETHEUS_OPERATOR-$(cksum < "$ROOT/scripts/kubernetes/schemas.py" | cut -d' ' -f1)
[ -d "$schemas" ] || make_schemas "$schemas"
exec 9>&-

# --- Checks ---

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$manifests" "$work/manifests"
overlays=() components=()
for overlay in "$manifests"/overlays/*/; do overlays+=("$(basename "$overlay")"); done
for component in "$manifests"/components/*/; do components+=("$(basename "$component")"); done
for overlay in "${overlays[@]}"; do
  all=$work/manifests/overlays/$overlay-with-components
  mkdir "$all"
  {
    printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../%s]\ncomponents:\n' "$overlay"
    printf -- '- ../../components/%s\n' "${components[@]}"
  } > "$all/kustomization.yaml"
done
help=()
if [ -n "$program" ]; then
  "$program" run --help > "$work/help"
  help=("$work/help")
fi

status=0
for overlay in base "${overlays[@]/#/overlays/}" "${overlays[@]/%/-with-components}"; do
  case $overlay in
    base) place=base;; overlays/*) place=$overlay;; *) place=overlays/$overlay;;
  esac
  name=${place#overlays/} rendered=$work/rendered.yaml
  name=${name/-with-components/ with all components}
  if ! "$DIR/kustomize-$KUSTOMIZE" build "$work/manifests/$place" > "$rendered" 2> "$work/errors"; then
    sed "s|^|$name: |; s|$work/manifests|$manifests|g" "$work/errors"
    status=1
    continue
  fi
  good=yes
  "$DIR/kubeconform-$KUBECONFORM" -strict -schema-location "$schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json" "$rendered" > "$work/errors" 2>&1 \
    || { sed "s|^$rendered - |$name: |" "$work/errors"; good=no; }
  [ $good = no ] || "$DIR/venv/bin/python" "$ROOT/scripts/kubernetes/check.py" "$ROOT" "$name" "$rendered" "${help[@]}" || good=no
  case $good in yes) echo "$name: $(grep -c '^kind:' "$rendered") objects: ok";; no) status=1;; esac
done
if [ -n "$program" ]; then
  "$program" check "$manifests/base/app" > "$work/app" 2>&1 && echo "app: ok" || { sed 's/^/app: /' "$work/app"; status=1; }
fi
# a second run keeps the authority
if ! command -v openssl >/dev/null; then
  echo "certificates.sh: skipped: openssl is not installed"
elif (cd "$work" && "$manifests/certificates.sh" peers tidemill-0 && cp peers/ca.crt first.crt && "$manifests/certificates.sh" peers tidemill-0 tidemill-1 \
    && cmp first.crt peers/ca.crt && for purpose in sslserver sslclient; do
      openssl verify -CAfile peers/ca.crt -purpose $purpose -verify_hostname tidemill-1 peers/tls.crt || exit 1
    done) > "$work/errors" 2>&1; then
  echo "certificates.sh: ok"
else
  sed 's/^/certificates.sh: /' "$work/errors"
  status=1
fi
exit $status
