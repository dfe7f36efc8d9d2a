#!/usr/bin/env bash
# Runs real Kafka brokers (KRaft, combined mode) on loopback, for tests of the log on Kafka.
#
#   scripts/kafka.sh start [N]    starts N brokers (default 1), prints their addresses; downloads Kafka first (43 MB)
#   scripts/kafka.sh stop [ID]    stops all brokers, or the one with this id
#   scripts/kafka.sh kill ID      kills one broker, as a crash does
#   scripts/kafka.sh resume ID    starts a broker again that was stopped or killed
#   scripts/kafka.sh wipe         stops all brokers and deletes their data
#   scripts/kafka.sh download     downloads Kafka without starting a broker
#
# Environment: KAFKA_DIR (default ${TMPDIR:-/tmp}/tidemill-kafka), KAFKA_LIBS (where the program is, default below KAFKA_DIR),
# KAFKA_HEAP (default 256m; 512m at most is enough), KAFKA_PORT (default 29091; broker I listens on KAFKA_PORT + I - 1, its
# controller 10,000 below), KAFKA_SASL_PORT (none by default; broker I listens there + I - 1 for clients that log in by
# SASL/PLAIN as `tidemill` with the password `tidemill`).
# Needs Java 17 or later and Maven: `apt-get install openjdk-17-jre-headless maven`.
set -euo pipefail
# A broker must not inherit the descriptor of a lock under which this script runs: it would hold the lock.
for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done

VERSION=4.2.0
DIR=${KAFKA_DIR:-${TMPDIR:-/tmp}/tidemill-kafka}
HEAP=${KAFKA_HEAP:-256m}
PORT=${KAFKA_PORT:-29091}
LIBS=${KAFKA_LIBS:-$DIR/libs}-$VERSION
CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk

fail() { echo "kafka.sh: $*" >&2; exit 1; }

# Maven checks each download against the checksums of the repository; the broker itself is pinned here as well.
KAFKA_SHA256=0490bc0a8675f9217c52b788c8a586f692ad5ae34a50a3ed370d2533b01bdbcb
download() {
  [ -d "$LIBS" ] && return
  mkdir -p "$(dirname "$LIBS")"
  command -v mvn >/dev/null || fail "Maven is missing: apt-get install maven"
  mkdir -p "$DIR"
  cat > "$DIR/pom.xml" <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tidemill</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$VERSION</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
EOF
  rm -rf "$LIBS.new"
  mvn -q -B --strict-checksums -f "$DIR/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$LIBS.new" >&2
  echo "$KAFKA_SHA256  $LIBS.new/kafka_2.13-$VERSION.jar" | sha256sum --check --quiet || fail "the downloaded broker is not the expected file"
  mv "$LIBS.new" "$LIBS"
}

running() { [ -f "$1/pid" ] && kill -0 "$(cat "$1/pid")" 2>/dev/null; }

configure() { # ID, number of brokers
  local i id=$1 n=$2 home=$DIR/broker-$1 voters="" replicas=$(( $2 < 3 ? $2 : 3 )) in_sync=$(( $2 < 3 ? 1 : 2 ))
  local sasl="" map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
  [ -z "${KAFKA_SASL_PORT:-}" ] || sasl=",SASL://127.0.0.1:$((KAFKA_SASL_PORT + id - 1))"
  for i in $(seq 1 "$n"); do voters+="${voters:+,}$i@127.0.0.1:$((PORT - 10000 + i - 1))"; done
  mkdir -p "$home"
  cat > "$home/server.properties" <<EOF
process.roles=broker,controller
node.id=$id
controller.quorum.voters=$voters
listeners=PLAINTEXT://127.0.0.1:$((PORT + id - 1)),CONTROLLER://127.0.0.1:$((PORT - 10000 + id - 1))$sasl
advertised.listeners=PLAINTEXT://127.0.0.1:$((PORT + id - 1))$sasl
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=$map
log.dirs=$home/data
default.replication.factor=$replicas
min.insync.replicas=$in_sync
offsets.topic.replication.factor=$replicas
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$replicas
transaction.state.log.min.isr=$in_sync
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$replicas
share.coordinator.state.topic.min.isr=$in_sync
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_tidemill="tidemill";
EOF
}

launch() { # ID
  local home=$DIR/broker-$1
  [ -f "$home/server.properties" ] || fail "there is no broker $1: start it first"
  running "$home" && return
  if [ ! -f "$home/data/meta.properties" ]; then
    java -Xmx128m -cp "$LIBS/*" kafka.tools.StorageTool format -t "$CLUSTER_ID" -c "$home/server.properties" > "$home/format.log" 2>&1 \
      || { cat "$home/format.log" >&2; fail "cannot format the storage of broker $1"; }
  fi
  nohup java "-Xmx$HEAP" -Xms64m -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=info -cp "$LIBS/*" \
    kafka.Kafka "$home/server.properties" > "$home/out.log" 2>&1 < /dev/null &
  echo $! > "$home/pid"
}

await() { # ID
  local home=$DIR/broker-$1
  until grep -q "Kafka Server started" "$home/out.log" 2>/dev/null; do
    running "$home" || { tail -20 "$home/out.log" >&2; fail "broker $1 ended"; }
    sleep 0.1
  done
}

end() { # ID, signal
  local home=$DIR/broker-$1
  running "$home" || return 0
  kill "-$2" "$(cat "$home/pid")"
  while running "$home"; do sleep 0.1; done
  rm -f "$home/pid"
}

ids() { for home in "$DIR"/broker-*; do [ -d "$home" ] && echo "${home##*-}"; done; return 0; }

command -v java >/dev/null || fail "Java is missing: apt-get install openjdk-17-jre-headless"
case ${1:-} in
  start)
    n=${2:-1}; addresses=""
    download
    for i in $(seq 1 "$n"); do configure "$i" "$n"; launch "$i"; addresses+="${addresses:+,}127.0.0.1:$((PORT + i - 1))"; done
    for i in $(seq 1 "$n"); do await "$i"; done
    echo "$addresses";;
  download) download;;
  stop) if [ $# -gt 1 ]; then end "$2" TERM; else for i in $(ids); do end "$i" TERM; done; fi;;
  kill) end "${2:?which broker?}" KILL;;
  resume) launch "${2:?which broker?}"; await "$2";;
  wipe) for i in $(ids); do end "$i" KILL; done; rm -rf "$DIR"/broker-*;;
  *) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2;;
esac
