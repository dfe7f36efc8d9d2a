#!/usr/bin/env bash
# The word list from which bench/cep makes its mails: american-english of Debian's package wamerican 2020.12.07-2.
#
#     scripts/fetch_words.sh [DIR]        # writes DIR/american-english; DIR is data/ when not given
#
# Takes the installed one, or downloads the package with apt-get; needs Debian's tools for that. Other versions of the
# list give other mails, so it is checked.
set -euo pipefail
cd "$(dirname "$0")/.."

words=american-english
sha256=9f513f1ceadb6a01c5485b7dbdfd5118dc66cd70b59cae2851292112d4066a32
dir=${1:-data}

is_right() { [ -f "$1" ] && echo "$sha256  $1" | sha256sum --check --status; }

mkdir -p "$dir"
if is_right "$dir/$words"; then
    exit 0
fi
if is_right "/usr/share/dict/$words"; then
    cp "/usr/share/dict/$words" "$dir/$words"
    exit 0
fi
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
(cd "$temporary" && apt-get download wamerican=2020.12.07-2 && dpkg-deb -x wamerican_*.deb package)
if ! is_right "$temporary/package/usr/share/dict/$words"; then
    echo "fetch_words.sh: the package holds another list than version 2020.12.07-2" >&2
    exit 1
fi
cp "$temporary/package/usr/share/dict/$words" "$dir/$words"
