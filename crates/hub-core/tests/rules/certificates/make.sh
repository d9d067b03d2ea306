#!/bin/sh
# Makes these certificates anew, with other keys, in the directory that is given: the tests have what OpenSSL 3.0 made
# once. The keys are not kept.
set -eu

out=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

rsa() { openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out "$1.key" 2>log; }
ec() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>log; }

# certificate NAME SUBJECT EXTENSIONS ISSUER [BEGIN [END]]: `openssl ca` is the command that takes dates.
certificate() {
    name=$1 subject=$2 extensions=$3 issuer=$4 begin=${5:-20200101000000Z} end=${6:-99991231235959Z}
    printf '[v3]\n%b' "$extensions" >extensions
    printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\n' >config
    printf 'default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n' >>config
    : >index
    openssl rand -hex 8 >serial
    openssl req -new -key "$name.key" -subj "/CN=$subject" -out "$name.csr" 2>log
    if [ "$issuer" = self ]; then
        set -- -selfsign -keyfile "$name.key"
    else
        set -- -cert "$issuer.crt" -keyfile "$issuer.key"
    fi
    openssl ca -batch -notext -config config -extfile extensions -extensions v3 \
        -startdate "$begin" -enddate "$end" "$@" -in "$name.csr" -out "$name.crt" 2>log
}

KEYS='subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid:always\n'
HOST='subjectAltName=DNS:proxy.example\n'
CA="basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n$KEYS"
LEAF="basicConstraints=critical,CA:FALSE\n$HOST$KEYS"

rsa rsa-root && certificate rsa-root 'RSA root' "$CA" self
rsa rsa-leaf && certificate rsa-leaf proxy.example "$LEAF" rsa-root
rsa rsa-leaf-renewed && certificate rsa-leaf-renewed proxy.example "$LEAF" rsa-root
ec ecdsa-root && certificate ecdsa-root 'ECDSA root' "$CA" self
ec ecdsa-intermediate && certificate ecdsa-intermediate 'ECDSA intermediate' "$CA" ecdsa-root
ec ecdsa-leaf && certificate ecdsa-leaf proxy.example "$LEAF" ecdsa-intermediate
cp ecdsa-root.key ecdsa-root-by-rsa.key && certificate ecdsa-root-by-rsa 'ECDSA root' "$CA" rsa-root
cp ecdsa-root.key ecdsa-root-renewed.key
certificate ecdsa-root-renewed 'ECDSA root' "$CA" self 20250101000000Z
ec expired-root && certificate expired-root 'Expired root' "$CA" self 20190101000000Z 20200101000000Z
ec leaf-of-expired
certificate leaf-of-expired proxy.example "$LEAF" expired-root 20190101000000Z 20200101000000Z
ec self-signed-leaf && certificate self-signed-leaf proxy.example "$LEAF" self
rsa self-signed-bare && certificate self-signed-bare proxy.example "$HOST" self
ec namesake-root && certificate namesake-root proxy.example "$CA" self
ec namesake-leaf && certificate namesake-leaf proxy.example "$LEAF" namesake-root
ec version-1-root
openssl req -new -key version-1-root.key -subj '/CN=Version 1 root' -out version-1.csr 2>log
openssl x509 -req -in version-1.csr -signkey version-1-root.key -days 36500 -out version-1-root.crt 2>log
ec leaf-of-version-1 && certificate leaf-of-version-1 proxy.example "$HOST" version-1-root
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521 -out p521-root.key 2>log
certificate p521-root 'P-521 root' "$CA" self
ec leaf-of-p521 && certificate leaf-of-p521 proxy.example "$LEAF" p521-root
cp ./*.crt "$out"
