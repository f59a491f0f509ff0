#!/usr/bin/env bash
# Starts examples/deploy/vivavoce.service under systemd itself, and calls the gateway in it 50 times at once.
#
#     sudo tests/deploy/try_service_unit.sh [CALLS [SECONDS]]
#
# systemd is the first process of namespaces of its own, where /opt/vivavoce is this checkout; nothing is installed and
# this machine's services are not touched. Needs root and .venv. Without CAP_SYS_RESOURCE (containers) the unit's
# limits cannot be raised: they are left out then, and the whole service gets the priority of the media process.
set -euo pipefail
cd "$(dirname "$0")/../.."
calls=${1:-50} seconds=${2:-30} port=19092
checkout=$PWD python=$(dirname "$(dirname "$(readlink -f .venv/bin/python)")")
work=$(mktemp -d)
export checkout python work port

inside() {
    mount -t tmpfs -o mode=755 tmpfs "$work" && mkdir "$work/changed" "$work/staging"
    mount -t overlay -o "lowerdir=/etc,upperdir=$work/changed,workdir=$work/staging" overlay /etc
    for folder in /run /opt /var/lib; do mount -t tmpfs -o mode=755 tmpfs $folder; done
    mount -t tmpfs -o mode=1777 tmpfs /tmp
    mkdir -p /opt/vivavoce /etc/systemd/system/vivavoce.service.d
    echo vivavoce:x:61009:61009::/var/lib/vivavoce:/usr/sbin/nologin >>/etc/passwd
    echo vivavoce:x:61009: >>/etc/group
    printf '[http]\nport = 0\n[audiosocket]\nport = %s\n' "$port" >/etc/vivavoce.toml
    mkdir -m 700 /var/lib/vivavoce
    .venv/bin/vivavoce keys add try --keys-file /var/lib/vivavoce/keys.json >/dev/null
    chown -R 61009:61009 /var/lib/vivavoce
    cp examples/deploy/vivavoce.service /etc/systemd/system/
    {
        printf '[Unit]\nDefaultDependencies=no\nWants=\nAfter=\n[Service]\nRestart=no\n'
        printf 'StandardOutput=append:/run/vivavoce.log\nStandardError=append:/run/vivavoce.log\n'
        # The interpreter and the checkout may lie below /root or /home, which the unit hides.
        printf 'ProtectHome=tmpfs\nBindReadOnlyPaths=%s %s:/opt/vivavoce %s\n' "$python" "$checkout" "$checkout"
        if ! prlimit --nice=40 true 2>/dev/null; then
            printf 'LimitNOFILE=\nLimitNICE=\nNice=-10\n'
        fi
    } >/etc/systemd/system/vivavoce.service.d/here.conf
    exec /lib/systemd/systemd --system --unit=vivavoce.service --show-status=no --log-target=console
}

export -f inside
unshare --mount --pid --fork --mount-proc --uts --ipc --cgroup --kill-child bash -c inside 2>&1 &
namespace=$!
trap 'kill -KILL $namespace 2>/dev/null || true; wait 2>/dev/null; rmdir "$work" 2>/dev/null || true' EXIT
systemd=$(for _ in {1..50}; do pgrep -P $namespace && break; sleep 0.1; done)
log() { cat "/proc/$systemd/root/run/vivavoce.log" 2>/dev/null || true; }
for _ in {1..120}; do
    if log | grep -q -e "is ready" -e "^vivavoce: "; then break; fi
    sleep 0.5
done
log
main=$(pgrep -P "$systemd" -f "vivavoce serve" || true)
[ -n "$main" ] || { echo "the service does not run" >&2; exit 1; }
for process in $main $(pgrep -P "$main"); do
    printf 'process %s: user %s, nice %s, seccomp %s, %s\n' "$process" "$(stat -c %u "/proc/$process")" \
        "$(ps -o ni= -p "$process")" "$(awk '/^Seccomp:/ {print $2}' "/proc/$process/status")" \
        "$(awk '/^NoNewPrivs:/ {print "no_new_privs " $2}' "/proc/$process/status")"
done
.venv/bin/vivavoce phone 127.0.0.1 "$port" --calls "$calls" --seconds "$seconds"
