# shellcheck shell=sh
# Runs a node: the first process of its own process, mount and network namespaces. When it ends, the kernel ends
# everything in them: containerd, the kubelet, and every container.
#
#   sh node.sh PROGRAMS CGROUP NAME ADDRESS NAME-SERVER ADDRESS...
#
# The working directory has the configurations and the archives of images. The kubelet starts once the file `begin`
# exists. If one of the programs ends, so does the node.
set -eu
umask 022
programs=$1 cgroup=$2 name=$3
shift 3
PATH=$programs:$PATH:/usr/sbin:/sbin

# containerd looks up the registries of images that are missing: their names do not exist. A link leads to what is hidden
# below.
echo "nameserver $2" >resolv.conf
[ -L /etc/resolv.conf ] || mount --bind resolv.conf /etc/resolv.conf

# What programs keep at fixed paths is this node's own.
for directory in /run /var/lib /var/log; do mount -t tmpfs -o mode=0755 tmpfs "$directory"; done

# One cgroup for all of it, so that all of it can be waited for and removed.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mkdir -p "/sys/fs/cgroup/$cgroup/node"
  echo 0 >"/sys/fs/cgroup/$cgroup/node/cgroup.procs"
  for group in /sys/fs/cgroup "/sys/fs/cgroup/$cgroup"; do
    tr ' ' '\n' <"$group/cgroup.controllers" | while read -r controller; do
      echo "+$controller" >"$group/cgroup.subtree_control" 2>/dev/null || true
    done
  done
  grep -qw memory "/sys/fs/cgroup/$cgroup/cgroup.controllers" || { echo "/sys/fs/cgroup assigns no memory" >&2; exit 1; }
else
  for hierarchy in /sys/fs/cgroup/*; do
    [ -e "$hierarchy/cgroup.procs" ] || continue
    mkdir -p "$hierarchy/$cgroup"
    # Not possible where its resources are not assigned yet, which the kubelet does.
    echo 0 2>/dev/null >"$hierarchy/$cgroup/cgroup.procs" || true
  done
fi

# A kubelet sets these for all of the machine. It finds here what it wants, and the machine keeps its own.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  path=${setting%=*}
  file=${path##*/}
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/$path"
done

# Kubelets, containerd and API servers watch files, and the limit of a user is often 128 for all of them. It stays.
limit=/proc/sys/fs/inotify/max_user_instances
[ "$(cat "$limit")" -ge 1024 ] || echo 1024 >"$limit"

ip link set lo up
# Any device: nothing leaves the node. Not every kernel has dummy devices.
ip link add node0 type bridge
ip link set node0 up
for address in "$@"; do ip address add "$address/32" dev node0; done
ip route add default dev node0 src "$1"
echo 1 >/proc/sys/net/ipv4/ip_forward

# begin PROGRAM [ARGUMENT]...
trap 'exit 1' USR1
begin() {
  (
    status=0
    "$@" >"$1.log" 2>&1 || status=$?
    echo "$1 has ended with $status: $(tail -n 5 "$1.log")" >&2
    kill -s USR1 1
  ) &
}
client() { ctr --address "$PWD/containerd.sock" --namespace k8s.io "$@"; }

begin containerd --config containerd.toml
until client version >/dev/null 2>&1; do sleep 0.05; done
for image in images/*.tar; do
  client images import "$image" >import.log 2>&1 || { cat import.log >&2; exit 1; }
done

until [ -e begin ]; do sleep 0.05; done
begin kubelet --config=kubelet.yaml --kubeconfig=kubeconfig --root-dir="$PWD/kubelet" --hostname-override="$name" \
  --node-ip="$1" --cgroup-root="/$cgroup"
begin kube-proxy --config=kube-proxy.yaml
begin coredns -conf Corefile
# It requires the node's object, and programs of these names: those of nftables do not know its sets.
policies() {
  until [ -e registered ]; do sleep 0.05; done
  mkdir legacy
  for program in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -s "$(command -v xtables-legacy-multi)" "legacy/$program"
  done
  PATH=$PWD/legacy:$PATH exec ./kube-router --run-firewall --run-router=false --run-service-proxy=false \
    --enable-cni=false --kubeconfig=kubeconfig --hostname-override="$name" --service-cluster-ip-range=10.0.0.0/24 \
    --health-port=0
}
[ ! -e kube-router ] || begin policies
# Also for the processes whose parents have ended: their new parent is this one.
while :; do wait; sleep 1; done
