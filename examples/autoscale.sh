#!/usr/bin/env bash
# Run a command on a Ray cluster that grows with the work, all of it on this machine:
#
#   examples/autoscale.sh tstore ingest --hub examples/hub --store /tmp/store
#
# It starts as a head without cores. The nodes that are there at the end are listed. `ray` and
# `python` must be on the PATH; PORT is where the head listens.
set -eu
[ $# -gt 0 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
port=${PORT:-6399}
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d /tmp/ray-XXXXXX)   # short: Ray's sockets lie in it
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$folder/token RAY_USAGE_STATS_ENABLED=0
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$folder/token")
sed "s/PORT/$port/" "$here/fake_multinode.yaml" > "$folder/cluster.yaml"

# The head is known to the autoscaler by this id.
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" RAY_FAKE_CLUSTER=1 \
RAY_OVERRIDE_NODE_ID_FOR_TESTING=fffffffffffffffffffffffffffffffffffffffffffffffffff00000 \
    setsid ray start --head --block --num-cpus=0 --port="$port" --include-dashboard=false \
    --dashboard-agent-listen-port=0 --object-store-memory=100000000 --temp-dir="$folder/rt" \
    --autoscaling-config="$folder/cluster.yaml" > "$folder/log" 2>&1 &
head=$!
# All at once: nodes of the autoscaler would outlive a head that is only asked to end.
trap 'kill -KILL -- -$head; wait $head 2> /dev/null || true; rm -rf "$folder"' EXIT

until grep -q "Ray runtime started" "$folder/log"; do
    kill -0 $head 2> /dev/null || { cat "$folder/log" >&2; exit 2; }
    sleep 0.5
done
export RAY_ADDRESS=127.0.0.1:$port
code=0
"$@" || code=$?
python - >&2 << 'END'
import ray
ray.init(logging_level="ERROR")
for node in ray.nodes():
    if node["Alive"]:  # Ray names those that went, too
        print(f"node {node['NodeID'][-5:]}: {node['Resources'].get('CPU', 0):.0f} cores")
END
exit $code
