#!/usr/bin/env bash
# Runs real servers on loopback, for tests of connectors and for trying them out.
#
#   scripts/servers.sh start NAME…    installs what is missing, starts the servers, prints their addresses
#   scripts/servers.sh stop [NAME…]   stops all servers, or these
#   scripts/servers.sh kill NAME…     ends servers as a crash does; `start` starts them again with their data
#   scripts/servers.sh status         prints which servers run
#   scripts/servers.sh env [NAME…]    prints the addresses, for `eval "$(scripts/servers.sh env)"`
#   scripts/servers.sh install NAME…  installs without starting
#   scripts/servers.sh wipe           stops all servers and deletes their data
#   scripts/servers.sh watch PID      waits until this process has ended, then wipes
#
# Servers: kafka mosquitto rabbitmq artemis nats redis postgres mariadb tds influxdb smtp imap pushgateway s3 snmp.
# Exit code 3: a server cannot be had here; the message says why.
#
# Environment: SERVERS_DIR (default ~/.cache/tidemill/servers): data, logs and pid files.
# SERVERS_PORT (default 29100): first of the 100 ports that the servers listen on.
# SERVERS_PROGRAMS (default ~/.cache/tidemill/programs): programs that are no packages of the system.
set -euo pipefail
# A server must not inherit the descriptor of a lock under which this script runs: it would hold the lock.
for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done

NATS_VERSION=v2.15.2
TDS_VERSION=0.3.0
S3_VERSION=v1.8.0
ARTEMIS_VERSION=2.40.0
DIR=${SERVERS_DIR:-$HOME/.cache/tidemill/servers}
PROGRAMS=${SERVERS_PROGRAMS:-$HOME/.cache/tidemill/programs}
PORT=${SERVERS_PORT:-29100}
# Dovecot serves the mail as the user `mail`, and asks with `access`, which ignores capabilities, whether it may write: so
# the mail of root's servers must not lie below the home of root.
if [ "$(id -u)" = 0 ]; then MAIL=/var/tmp/tidemill-mail-$PORT; else MAIL=$DIR/mail; fi
ALL="kafka mosquitto rabbitmq artemis nats redis postgres mariadb tds influxdb smtp imap pushgateway s3 snmp"
SCRIPTS=$(cd "$(dirname "$0")" && pwd)
START_TIMEOUT_S=90
# Debian keeps servers outside of the path of ordinary users.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin

fail() { echo "servers.sh: $*" >&2; exit 1; }
missing() { echo "servers.sh: $*" >&2; exit 3; }
is_root() { [ "$(id -u)" = 0 ]; }

port() {
  case $1 in
    kafka) echo "$PORT";; kafka-sasl) echo $((PORT + 1));;
    mosquitto) echo $((PORT + 10));; mosquitto-login) echo $((PORT + 11));;
    rabbitmq) echo $((PORT + 20));; rabbitmq-peers) echo $((PORT + 21));; rabbitmq-names) echo $((PORT + 22));;
    rabbitmq-tls) echo $((PORT + 23));;
    artemis) echo $((PORT + 25));; artemis-tls) echo $((PORT + 26));;
    nats) echo $((PORT + 30));; redis) echo $((PORT + 40));; redis-tls) echo $((PORT + 41));;
    postgres) echo $((PORT + 50));; mariadb) echo $((PORT + 60));; tds) echo $((PORT + 61));;
    influxdb) echo $((PORT + 65));; influxdb-backup) echo $((PORT + 66));;
    smtp) echo $((PORT + 70));; smtps) echo $((PORT + 71));; imap) echo $((PORT + 72));; imaps) echo $((PORT + 73));;
    pushgateway) echo $((PORT + 75));; s3) echo $((PORT + 80));; snmp) echo $((PORT + 85));;
    *) fail "there is no server $1 (known: $ALL)";;
  esac
}

# User and password of every server that has logins are `tidemill`. Kafka and Mosquitto have a port of their own for them;
# Artemis also takes clients that do not log in.
addresses() {
  local at=127.0.0.1
  case $1 in
    kafka) echo "SERVERS_KAFKA=$at:$(port kafka)"; echo "SERVERS_KAFKA_SASL=$at:$(port kafka-sasl)";;
    mosquitto) echo "SERVERS_MOSQUITTO=tcp://$at:$(port mosquitto)"; echo "SERVERS_MOSQUITTO_LOGIN=tcp://$at:$(port mosquitto-login)";;
    rabbitmq)
      echo "SERVERS_RABBITMQ=amqp://tidemill:tidemill@$at:$(port rabbitmq)"
      echo "SERVERS_RABBITMQ_TLS=amqps://tidemill:tidemill@$at:$(port rabbitmq-tls)"; echo "SERVERS_RABBITMQ_CA=$DIR/rabbitmq/tls/ca.pem";;
    artemis)
      echo "SERVERS_ARTEMIS=amqp://$at:$(port artemis)"
      echo "SERVERS_ARTEMIS_TLS=amqps://$at:$(port artemis-tls)"; echo "SERVERS_ARTEMIS_CA=$DIR/artemis/tls/ca.pem";;
    nats)
      echo "SERVERS_NATS=nats://$at:$(port nats)"
      echo "SERVERS_NATS_TLS=tls://$at:$(port nats)"; echo "SERVERS_NATS_CA=$DIR/nats/tls/ca.pem";;
    redis)
      echo "SERVERS_REDIS=redis://$at:$(port redis)"
      echo "SERVERS_REDIS_TLS=rediss://$at:$(port redis-tls)"; echo "SERVERS_REDIS_CA=$DIR/redis/tls/ca.pem";;
    postgres) echo "SERVERS_POSTGRES=postgres://tidemill:tidemill@$at:$(port postgres)/tidemill";;
    mariadb) echo "SERVERS_MARIADB=mysql://tidemill:tidemill@$at:$(port mariadb)/tidemill";;
    tds) echo "SERVERS_TDS=tds://tidemill:tidemill@$at:$(port tds)/"; echo "SERVERS_TDS_CA=$DIR/tds/tls/ca.pem";;
    influxdb) echo "SERVERS_INFLUXDB=http://tidemill:tidemill@$at:$(port influxdb)";;
    smtp)
      echo "SERVERS_SMTP=smtp://tidemill:tidemill@$at:$(port smtp)"; echo "SERVERS_MAIL_STORE=$MAIL/store"
      echo "SERVERS_SMTPS=smtps://tidemill:tidemill@$at:$(port smtps)";;
    imap)
      echo "SERVERS_IMAP=imap://tidemill:tidemill@$at:$(port imap)"; echo "SERVERS_IMAPS=imaps://tidemill:tidemill@$at:$(port imaps)"
      echo "SERVERS_MAIL_CA=$MAIL/ca.pem";;
    pushgateway) echo "SERVERS_PUSHGATEWAY=http://$at:$(port pushgateway)";;
    s3) echo "SERVERS_S3=http://$at:$(port s3)"; echo "SERVERS_S3_BUCKET=tidemill";;
    snmp) echo "SERVERS_SNMP=$at:$(port snmp)";;
    *) port "$1";;
  esac
}

# --- Installation ---

program() { # server: prints the program that must exist
  case $1 in
    kafka | artemis) echo java;; mosquitto) echo mosquitto;; rabbitmq) echo /usr/lib/rabbitmq/bin/rabbitmq-server;;
    nats) echo "$PROGRAMS/nats-server-$NATS_VERSION";; redis) echo redis-server;;
    postgres) ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -V | tail -1 | grep . || echo postgres;;
    mariadb) echo mariadbd;; influxdb) echo influxd;; smtp) echo /usr/lib/python3/dist-packages/aiosmtpd/smtp.py;; imap) echo /usr/lib/dovecot/imap;;
    pushgateway) echo prometheus-pushgateway;;
    tds) echo "$PROGRAMS/mssql-mock-tds-$TDS_VERSION/bin/mssql-mock-tds";;
    s3) echo "$PROGRAMS/versitygw-$S3_VERSION";;
    snmp) echo snmpd;;
    *) fail "there is no server $1 (known: $ALL)";;
  esac
}

# Installs packages of Debian without starting their services.
packages() {
  is_root || missing "$*: not installed; run as root: apt-get install $*"
  command -v apt-get >/dev/null || missing "$*: not installed, and there is no apt-get here; install them by hand"
  local policy=/usr/sbin/policy-rc.d made=no
  if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; made=yes; fi
  local log=$DIR/install-$1.log result=0
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } > "$log" 2>&1 < /dev/null || result=1
  if [ $made = yes ]; then rm -f $policy; fi
  [ $result = 0 ] || { tail -3 "$log" >&2; missing "apt-get install $* failed, see $log"; }
}

install_go() { # server, module with its version: builds the program of a server from its Go module
  command -v go >/dev/null || packages golang-go
  local name=$1 module=$2 build="$PROGRAMS/build-$1"
  mkdir -p "$build"
  GOBIN=$build go install "$module" > "$DIR/install-$name.log" 2>&1 < /dev/null \
    || { tail -3 "$DIR/install-$name.log" >&2; missing "$name: $module cannot be built, see $DIR/install-$name.log"; }
  mv "$build"/* "$(program "$name")"
}

# A mock of SQL Server by Microsoft. Its TLS needs OpenSSL, so it is no dependency of the workspace. It speaks TDS 8: in its older
# handshake it sends packets of another type than servers do.
install_tds() {
  command -v cargo >/dev/null || missing "cargo: not installed; it builds mssql-mock-tds"
  [ -e /usr/include/openssl/ssl.h ] && command -v pkg-config >/dev/null || packages libssl-dev pkg-config
  local root="$PROGRAMS/mssql-mock-tds-$TDS_VERSION"
  (cd / && CARGO_TARGET_DIR="$root-build" cargo install mssql-mock-tds --version "$TDS_VERSION" --locked --debug --root "$root") \
    > "$DIR/install-tds.log" 2>&1 < /dev/null \
    || { tail -3 "$DIR/install-tds.log" >&2; missing "mssql-mock-tds cannot be built, see $DIR/install-tds.log"; }
  rm -rf "$root-build"
}

# Maven checks each download against the checksums of the repository; the broker itself is pinned here as well.
ARTEMIS_SHA256=7392ae2bf2f5089f85fd004cbc1fa137e35332789421cea0702bd5bd78f06792
artemis_libs() { echo "$PROGRAMS/artemis-$ARTEMIS_VERSION"; }
install_artemis() {
  local libs pom=$DIR/artemis-pom.xml log=$DIR/install-artemis.log
  libs=$(artemis_libs)
  if [ -d "$libs" ]; then return; fi
  cat > "$pom" <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tidemill</groupId><artifactId>artemis</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.activemq</groupId><artifactId>artemis-cli</artifactId><version>$ARTEMIS_VERSION</version></dependency>
<dependency><groupId>org.apache.activemq</groupId><artifactId>artemis-amqp-protocol</artifactId><version>$ARTEMIS_VERSION</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.17</version></dependency>
</dependencies></project>
EOF
  rm -rf "$libs.new"
  mvn -q -B --strict-checksums -f "$pom" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$libs.new" \
    > "$log" 2>&1 < /dev/null || { tail -3 "$log" >&2; missing "Artemis cannot be downloaded, see $log"; }
  rm -f "$pom"
  echo "$ARTEMIS_SHA256  $libs.new/artemis-server-$ARTEMIS_VERSION.jar" | sha256sum --check --quiet \
    || fail "the downloaded broker is not the expected file"
  mv "$libs.new" "$libs"
}

install() {
  mkdir -p "$DIR" "$PROGRAMS"
  if ! { [ -f "$(program "$1")" ] || command -v "$(program "$1")" >/dev/null; } || { [ "$(program "$1")" = java ] && ! command -v mvn >/dev/null; }; then
    echo "servers.sh: installing $1" >&2
    case $1 in
      kafka | artemis) packages openjdk-17-jre-headless maven openssl;;
      mosquitto) packages mosquitto;;
      rabbitmq) packages rabbitmq-server openssl;;
      nats) install_go nats "github.com/nats-io/nats-server/v2@$NATS_VERSION";;
      redis) packages redis-server openssl;;
      postgres) packages postgresql;;
      mariadb) packages mariadb-server;;
      influxdb) packages influxdb curl;;
      smtp) packages python3-aiosmtpd openssl;;
      imap) packages dovecot-imapd openssl;;
      pushgateway) packages prometheus-pushgateway;;
      snmp) packages snmpd;;
      tds) install_tds;;
      s3) install_go s3 "github.com/versity/versitygw/cmd/versitygw@$S3_VERSION";;
    esac
  fi
  [ "$1" != artemis ] || install_artemis
  [ "$1" != kafka ] || kafka download 2> "$DIR/install-kafka.log" \
    || { tail -3 "$DIR/install-kafka.log" >&2; missing "Kafka cannot be downloaded, see $DIR/install-kafka.log"; }
}

# --- Running ---

running() { [ -s "$DIR/$1/pid" ] && kill -0 "$(cat "$DIR/$1/pid")" 2>/dev/null; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

run() { # server, command…: starts it in the background with a log and a pid file
  local name=$1; shift
  nohup "$@" > "$DIR/$name/log" 2>&1 < /dev/null &
  echo $! > "$DIR/$name/pid"
}

await() { # server: waits until it listens
  local deadline=$((SECONDS + START_TIMEOUT_S))
  until listens "$(port "$1")"; do
    running "$1" || { tail -20 "$DIR/$1/log" >&2; fail "$1 ended while it started, see $DIR/$1/log"; }
    [ $SECONDS -lt $deadline ] || fail "$1 does not listen after $START_TIMEOUT_S s, see $DIR/$1/log"
    sleep 0.1
  done
  running "$1" || { tail -20 "$DIR/$1/log" >&2; fail "$1 ended, and another program listens on port $(port "$1")"; }
}

kafka() {
  KAFKA_DIR=$DIR/kafka KAFKA_LIBS=$PROGRAMS/kafka KAFKA_PORT=$(port kafka) KAFKA_SASL_PORT=$(port kafka-sasl) "$SCRIPTS/kafka.sh" "$@"
}

# Makes an authority of its own and a certificate for this machine.
make_certificates() { # directory
  local home=$1
  mkdir -p "$home"
  if [ -f "$home/key.pem" ]; then return; fi
  command -v openssl >/dev/null || missing "openssl: not installed; it makes the certificates of the servers"
  { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Tidemill test authority" \
      -keyout "$home/ca.key" -out "$home/ca.pem" \
    && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=localhost" \
      -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -addext "basicConstraints=critical,CA:FALSE" \
      -CA "$home/ca.pem" -CAkey "$home/ca.key" -keyout "$home/key.tmp" -out "$home/certificate.pem" \
    && mv "$home/key.tmp" "$home/key.pem"; } > "$home/openssl.log" 2>&1 || { tail -3 "$home/openssl.log" >&2; fail "openssl failed"; }
}

start_mosquitto() {
  local home=$DIR/mosquitto
  [ -f "$home/passwords" ] || mosquitto_passwd -b -c "$home/passwords" tidemill tidemill
  cat > "$home/mosquitto.conf" <<EOF
per_listener_settings true
listener $(port mosquitto) 127.0.0.1
allow_anonymous true
listener $(port mosquitto-login) 127.0.0.1
allow_anonymous false
password_file $home/passwords
persistence true
persistence_location $home/
max_queued_messages 100000
# 2.0.11 stops sending queued messages of quality of service 2 when its window was full
max_inflight_messages 0
$(is_root && echo "user root")
EOF
  run mosquitto mosquitto -c "$home/mosquitto.conf"
}

start_rabbitmq() {
  local home=$DIR/rabbitmq
  make_certificates "$home/tls"
  cat > "$home/rabbitmq.conf" <<EOF
default_user = tidemill
default_pass = tidemill
loopback_users = none
disk_free_limit.absolute = 50MB
max_message_size = 16777216
listeners.ssl.1 = 127.0.0.1:$(port rabbitmq-tls)
ssl_options.cacertfile = $home/tls/ca.pem
ssl_options.certfile = $home/tls/certificate.pem
ssl_options.keyfile = $home/tls/key.pem
ssl_options.verify = verify_none
EOF
  echo "[]." > "$home/plugins"
  run rabbitmq env -i PATH="$PATH" HOME="$home" LANG=C.UTF-8 RABBITMQ_NODENAME=tidemill@localhost \
    RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$(port rabbitmq)" RABBITMQ_DIST_PORT="$(port rabbitmq-peers)" \
    ERL_EPMD_PORT="$(port rabbitmq-names)" ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_MNESIA_BASE="$home/data" \
    RABBITMQ_LOG_BASE="$home/logs" RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" RABBITMQ_CONF_ENV_FILE="$home/none" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$home/plugins" RUNNING_UNDER_SYSTEMD=yes \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} +S 2:2" \
    /usr/lib/rabbitmq/bin/rabbitmq-server
}

# Queues and topics are made when they are first used. An address that begins with `full.` takes ten messages and refuses others;
# nobody may send to one that begins with `closed.`.
start_artemis() {
  local home=$DIR/artemis tls match right role
  make_certificates "$home/tls"
  printf 'source.key=%s\nsource.cert=%s\n' "$home/tls/key.pem" "$home/tls/certificate.pem" > "$home/tls/store.pemcfg"
  tls="sslEnabled=true;keyStoreType=PEMCFG;keyStorePath=$home/tls/store.pemcfg"
  mkdir -p "$home/etc"
  cat > "$home/etc/broker.xml" <<EOF
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<persistence-enabled>true</persistence-enabled>
<journal-type>NIO</journal-type>
<max-disk-usage>-1</max-disk-usage>
<journal-directory>$home/data/journal</journal-directory><bindings-directory>$home/data/bindings</bindings-directory>
<large-messages-directory>$home/data/large</large-messages-directory><paging-directory>$home/data/paging</paging-directory>
<acceptors>
<acceptor name="amqp">tcp://127.0.0.1:$(port artemis)?protocols=AMQP;saslMechanisms=PLAIN,ANONYMOUS</acceptor>
<acceptor name="amqps">tcp://127.0.0.1:$(port artemis-tls)?protocols=AMQP;saslMechanisms=PLAIN,ANONYMOUS;$tls</acceptor>
</acceptors>
<security-settings>
$(for match in '#' 'closed.#'; do
  echo "<security-setting match=\"$match\">"
  for right in createNonDurableQueue deleteNonDurableQueue createDurableQueue deleteDurableQueue createAddress deleteAddress \
    consume browse send; do
    if [ $match = '#' ] || [ $right != send ]; then role=all; else role=nobody; fi
    echo "<permission type=\"$right\" roles=\"$role\"/>"
  done
  echo "</security-setting>"
done)
</security-settings>
<address-settings>
<address-setting match="#"><auto-delete-queues>false</auto-delete-queues><auto-delete-addresses>false</auto-delete-addresses></address-setting>
<address-setting match="full.#"><max-size-messages>10</max-size-messages><address-full-policy>FAIL</address-full-policy></address-setting>
</address-settings>
</core></configuration>
EOF
  cat > "$home/etc/bootstrap.xml" <<EOF
<broker xmlns="http://activemq.apache.org/schema"><jaas-security domain="activemq"/><server configuration="file:$home/etc/broker.xml"/></broker>
EOF
  echo '<management-context xmlns="http://activemq.apache.org/schema"/>' > "$home/etc/management.xml"
  cat > "$home/etc/login.config" <<EOF
activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule sufficient
    credentialsInvalidate=true org.apache.activemq.jaas.guest.user="tidemill" org.apache.activemq.jaas.guest.role="all";
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule requisite
    baseDir="$home/etc" org.apache.activemq.jaas.properties.user="users.properties" org.apache.activemq.jaas.properties.role="roles.properties";
};
EOF
  echo "tidemill = tidemill" > "$home/etc/users.properties"
  echo "all = tidemill" > "$home/etc/roles.properties"
  run artemis java -Xmx256m -Xms64m -XX:+UseSerialGC -Djava.security.auth.login.config="$home/etc/login.config" \
    -Dorg.slf4j.simpleLogger.log.org.apache.activemq.audit=off \
    -Dartemis.home="$home" -Dartemis.instance="$home" -Dartemis.instance.etc="$home/etc" \
    -cp "$(artemis_libs)/*" org.apache.activemq.artemis.cli.Artemis run
}

start_nats() {
  local home=$DIR/nats
  make_certificates "$home/tls"
  cat > "$home/nats.conf" <<EOF
listen: 127.0.0.1:$(port nats)
jetstream { store_dir: "$home/data" }
accounts { main { jetstream: enabled, users: [ { user: anybody }, { user: tidemill, password: tidemill } ] } }
no_auth_user: anybody
tls { cert_file: "$home/tls/certificate.pem", key_file: "$home/tls/key.pem" }
allow_non_tls: true
EOF
  run nats "$(program nats)" -c "$home/nats.conf"
}

start_redis() {
  local home=$DIR/redis
  make_certificates "$home/tls"
  cat > "$home/redis.conf" <<EOF
bind 127.0.0.1
port $(port redis)
tls-port $(port redis-tls)
tls-ca-cert-file $home/tls/ca.pem
tls-cert-file $home/tls/certificate.pem
tls-key-file $home/tls/key.pem
tls-auth-clients no
dir $home
appendonly yes
save ""
user tidemill on >tidemill ~* &* +@all
EOF
  run redis redis-server "$home/redis.conf"
}

# Some servers refuse to run as root. The capability lets their user reach a directory below the home of root.
# With EXEC=exec, in the background, the command takes the place of the shell, so that signals to its pid reach it.
as_user() { # user, home, command…
  local user=$1 home=$2; shift 2
  if is_root; then
    ${EXEC:-} setpriv --reuid="$user" --regid="$user" --clear-groups --inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search \
      env HOME="$home" "$@"
  else
    ${EXEC:-} "$@"
  fi
}
as_postgres() { as_user postgres "$DIR/postgres" "$@"; }

start_postgres() {
  local home=$DIR/postgres bin
  bin=$(dirname "$(program postgres)")
  if is_root; then chown postgres: "$home"; fi
  if [ ! -f "$home/data/PG_VERSION" ]; then
    rm -rf "$home/data"
    echo tidemill > "$home/password"
    as_postgres "$bin/initdb" --pgdata="$home/data" --username=tidemill --pwfile="$home/password" --auth=scram-sha-256 \
      --encoding=UTF8 --locale=C.UTF-8 --no-sync > "$home/initdb.log" 2>&1 || { tail -5 "$home/initdb.log" >&2; fail "initdb failed"; }
  fi
  cd "$home"
  rm -f "$home/data/postmaster.pid"
  EXEC=exec as_postgres nohup "$bin/postgres" -D "$home/data" -h 127.0.0.1 -p "$(port postgres)" -c unix_socket_directories= \
    -c wal_level=logical -c shared_buffers=32MB > "$home/log" 2>&1 < /dev/null &
  echo $! > "$home/pid"
}

ready_postgres() {
  local url=postgres://tidemill:tidemill@127.0.0.1:$(port postgres) deadline=$((SECONDS + START_TIMEOUT_S))
  until psql -qtA "$url/postgres" -c "select 1" >/dev/null 2>&1; do
    running postgres || { tail -5 "$DIR/postgres/log" >&2; fail "postgres ended while it started"; }
    [ $SECONDS -lt $deadline ] || fail "postgres does not answer, see $DIR/postgres/log"
    sleep 0.1
  done
  psql -qtA "$url/postgres" -c "select 1 from pg_database where datname = 'tidemill'" | grep -q 1 \
    || psql -qtA "$url/postgres" -c "create database tidemill"
}

start_mariadb() {
  local home=$DIR/mariadb user
  user=$(id -un)
  if [ ! -d "$home/data/mysql" ]; then
    mariadb-install-db --no-defaults --datadir="$home/data" --user="$user" --auth-root-authentication-method=normal \
      --skip-test-db > "$home/install.log" 2>&1 || { tail -5 "$home/install.log" >&2; fail "mariadb-install-db failed"; }
  fi
  cat > "$home/init.sql" <<EOF
create database if not exists tidemill;
create user if not exists tidemill@'%' identified by 'tidemill';
grant all privileges on *.* to tidemill@'%';
EOF
  run mariadb mariadbd --no-defaults --datadir="$home/data" --user="$user" --bind-address=127.0.0.1 --port="$(port mariadb)" \
    --socket="$home/socket" --pid-file="$home/mariadb.pid" --init-file="$home/init.sql" --skip-name-resolve \
    --server-id=1 --log-bin=binlog --binlog-format=ROW --binlog-row-image=FULL --innodb-buffer-pool-size=64M
}

start_tds() {
  local home=$DIR/tds
  make_certificates "$home/tls"
  run tds "$(program tds)" --port "$(port tds)" --tls-mode strict --cert "$home/tls/certificate.pem" --key "$home/tls/key.pem"
}

start_influxdb() {
  local home=$DIR/influxdb
  cat > "$home/influxdb.conf" <<EOF
reporting-disabled = true
bind-address = "127.0.0.1:$(port influxdb-backup)"
[meta]
dir = "$home/meta"
[data]
dir = "$home/data"
wal-dir = "$home/wal"
[monitor]
store-enabled = false
[http]
bind-address = "127.0.0.1:$(port influxdb)"
auth-enabled = true
log-enabled = false
EOF
  run influxdb influxd -config "$home/influxdb.conf"
}

# The first user may be made without a login.
ready_influxdb() {
  local url=http://127.0.0.1:$(port influxdb)/query deadline=$((SECONDS + START_TIMEOUT_S))
  until curl -sf -o "$DIR/influxdb/ready" -u tidemill:tidemill "$url" --data-urlencode "q=show databases"; do
    running influxdb || { tail -5 "$DIR/influxdb/log" >&2; fail "influxdb ended while it started"; }
    [ $SECONDS -lt $deadline ] || fail "influxdb does not answer, see $DIR/influxdb/log"
    curl -s -o "$DIR/influxdb/ready" "$url" --data-urlencode "q=create user tidemill with password 'tidemill' with all privileges" || true
    sleep 0.1
  done
}

start_pushgateway() {
  run pushgateway prometheus-pushgateway --web.listen-address="127.0.0.1:$(port pushgateway)" --persistence.file="$DIR/pushgateway/metrics"
}

# An S3 server over a directory; each directory in it is a bucket.
start_s3() {
  local home=$DIR/s3
  mkdir -p "$home/buckets/tidemill"
  ROOT_ACCESS_KEY=tidemill ROOT_SECRET_KEY=tidemill \
    run s3 "$(program s3)" --port "127.0.0.1:$(port s3)" --region us-east-1 --keep-alive --quiet posix "$home/buckets"
}

# An agent that answers by UDP; TCP shows that it listens. The community `tidemill` may set values, `public` may not.
start_snmp() {
  local home=$DIR/snmp at
  at=127.0.0.1:$(port snmp)
  mkdir -p "$home/state"
  cat > "$home/snmpd.conf" <<EOF
agentaddress udp:$at,tcp:$at
rocommunity public 127.0.0.1
rwcommunity tidemill 127.0.0.1
sysservices 72
createUser md5des MD5 tidemill-auth DES tidemill-priv
createUser shaaes SHA tidemill-auth AES tidemill-priv
createUser sha256 SHA-256 tidemill-auth
createUser plain
rwuser md5des priv
rwuser shaaes priv
rwuser sha256 auth
rwuser plain noauth
EOF
  SNMP_PERSISTENT_DIR=$home/state run snmp snmpd -f -Lo -C -c "$home/snmpd.conf" -I -smux,-ifTable,-diskio -p "$home/snmpd.pid"
}

# Both mail servers use $MAIL: certificates of an authority of their own, and the mail that SMTP stores and IMAP shows. The
# user `mail` owns it, because Dovecot refuses to serve the mail of root.
mail_user() { if is_root; then echo mail; else id -un; fi; }
# A run of tests that was killed has not wiped its mail, which lies outside of $DIR: the first start in a new $DIR does.
prepare_mail() {
  local home=$MAIL
  [ -e "$DIR/mail-is-ours" ] || rm -rf "${home:?}"
  touch "$DIR/mail-is-ours"
  mkdir -p "$home/store"
  make_certificates "$home"
  if is_root; then chown -R mail: "$home"; fi
}

run_mail() { # server, command…: as the owner of the mail
  local name=$1; shift
  if is_root; then chown mail: "$DIR/$name"; fi
  EXEC=exec as_user "$(mail_user)" "$DIR/$name" nohup "$@" > "$DIR/$name/log" 2>&1 < /dev/null &
  echo $! > "$DIR/$name/pid"
}

start_smtp() {
  local mail=$MAIL
  prepare_mail
  run_mail smtp /usr/bin/python3 "$SCRIPTS/smtp_server.py" "$(port smtp)" "$(port smtps)" "$mail/certificate.pem" "$mail/key.pem" "$mail/store"
}

# Every user exists; the mail of the user `name` is what arrived for `name@…`.
start_imap() {
  local home=$DIR/imap mail=$MAIL user
  user=$(mail_user)
  prepare_mail
  cat > "$home/dovecot.conf" <<EOF
base_dir = $home/run
state_dir = $home/state
log_path = /dev/stderr
protocols = imap
listen = 127.0.0.1
default_internal_user = $user
default_internal_group = $(id -gn "$user")
default_login_user = $user
first_valid_uid = 1
disable_plaintext_auth = no
ssl = yes
ssl_cert = <$mail/certificate.pem
ssl_key = <$mail/key.pem
mail_location = maildir:$mail/store/%n
passdb {
  driver = static
  args = password=tidemill
}
userdb {
  driver = static
  args = uid=$(id -u "$user") gid=$(id -g "$user") home=$mail/store/%n
}
service anvil {
  chroot =
}
service stats {
  chroot =
}
service imap-login {
  chroot =
  inet_listener imap {
    port = $(port imap)
  }
  inet_listener imaps {
    port = $(port imaps)
  }
}
EOF
  run_mail imap dovecot -F -c "$home/dovecot.conf"
}

# Starts a server without waiting for it.
launch() {
  local name=$1
  mkdir -p "$DIR/$name"
  running "$name" && return
  if listens "$(port "$name")"; then fail "another program listens on port $(port "$name"); set SERVERS_PORT"; fi
  (trap '' HUP; "start_$name")
}

start() { # servers: all at once, because each takes seconds
  local name kafka_pid=""
  for name in "$@"; do
    if [ "$name" = kafka ]; then kafka start > /dev/null & kafka_pid=$!; else launch "$name"; fi
  done
  [ -z "$kafka_pid" ] || wait "$kafka_pid"
  for name in "$@"; do
    [ "$name" = kafka ] || await "$name"
    [ "$name" != postgres ] || ready_postgres
    [ "$name" != influxdb ] || ready_influxdb
  done
}

# Ends a server: asks it to stop, or kills it with everything that it has started.
end() { # server, signal
  local name=$1 signal=$2 pid
  [ -d "$DIR/$name" ] || return 0
  if [ "$name" = kafka ]; then
    if [ "$signal" = KILL ]; then kafka kill 1; else kafka stop; fi
    return
  fi
  if running "$name"; then
    pid=$(cat "$DIR/$name/pid")
    # SIGINT is PostgreSQL's stop that does not wait for clients
    if [ "$name" = postgres ] && [ "$signal" = TERM ]; then signal=INT; fi
    local children
    children=$(pgrep -P "$pid" || true)
    kill "-$signal" "$pid" 2>/dev/null || true
    if [ "$signal" = KILL ]; then for child in $children; do kill -KILL "$child" 2>/dev/null || true; done; fi
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  fi
  rm -f "$DIR/$name/pid"
  if [ "$name" = rabbitmq ]; then stop_epmd; fi
}

# RabbitMQ leaves a name server behind.
stop_epmd() {
  ERL_EPMD_PORT=$(port rabbitmq-names) epmd -kill > /dev/null 2>&1 || true
}

state() {
  local pid=$DIR/$1/pid
  if [ "$1" = kafka ]; then pid=$DIR/kafka/broker-1/pid; fi
  if [ -s "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null; then echo running; else echo stopped; fi
}

# Two runs do not install at the same time.
locked() {
  mkdir -p "$PROGRAMS"
  if command -v flock >/dev/null; then
    exec 9>"$PROGRAMS/lock"
    flock 9
  fi
}
unlocked() { exec 9>&- || true; }

command=${1:-}
[ $# = 0 ] || shift
case $command in
  start | install)
    [ $# -gt 0 ] || fail "which servers? (known: $ALL)"
    for name in "$@"; do port "$name" > /dev/null; done
    for name in "$@"; do locked; install "$name"; unlocked; done
    [ "$command" = start ] || exit 0
    start "$@"
    for name in "$@"; do addresses "$name"; done;;
  stop) for name in ${*:-$ALL}; do end "$name" TERM; done;;
  kill) for name in "$@"; do end "$name" KILL; done;;
  status) for name in $ALL; do printf '%-10s %-8s %s\n' "$name" "$(state "$name")" "$(addresses "$name" | head -1 | cut -d= -f2-)"; done;;
  env) for name in ${*:-$ALL}; do addresses "$name" | sed 's/^/export /'; done;;
  wipe)
    for name in $ALL; do end "$name" KILL; rm -rf "${DIR:?}/$name"; done
    rm -rf "${MAIL:?}"
    rm -f "$DIR"/install-*.log "$DIR/mail-is-ours"
    rmdir "$DIR" 2>/dev/null || true;;
  watch)
    while kill -0 "${1:?which process?}" 2>/dev/null; do sleep 0.5; done
    exec "$0" wipe;;
  *) sed -n '2,19s/^# \{0,1\}//p' "$0"; exit 2;;
esac
