#!/usr/bin/env bash
# Tries the README in empty Debian systems: make run, the page, phone, say and, with --test, make test. Prints a table.
#
#     sudo tests/fresh_roots.sh [--test] [SUITE...]      suites of Debian or Ubuntu; default: bookworm trixie sid
#
# Needs root and debootstrap. MIRROR is another mirror, WORK another folder for the systems (1.5 GB each, kept
# for the next run). What is committed in this checkout is tried. "first sound": from git clone to the first sound of the
# page's tab Speak, in Chromium outside of the root, where this checkout has .venv and Chromium.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
work=${WORK:-/var/tmp/vivavoce-roots}
packages=git,make,python3-venv,ca-certificates,procps
with_tests=0
if [ "${1:-}" = --test ]; then with_tests=1; shift; fi
suites=("${@:-bookworm}")
if [ $# -eq 0 ]; then suites=(bookworm trixie sid); fi
mkdir -p "$work"

# In a process group of its own, so that all of it can be ended.
in_root() {
    setsid --wait chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 sh -c "$1"
}

unmount() { for mount in proc dev/shm dev/pts; do mountpoint -q "$root/$mount" && umount "$root/$mount"; done; }

prepare() {
    if [ ! -e "$root/.complete" ]; then
        rm -rf "$root"
        debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${MIRROR:-} >"$work/$suite.debootstrap.log" 2>&1
        touch "$root/.complete"
    fi
    # The network as this system has it: names, certificates, pip's configuration.
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    mkdir -p "$root/etc/ssl/certs"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    if [ -e /etc/pip.conf ]; then cp /etc/pip.conf "$root/etc/"; fi
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ln -sf pts/ptmx "$root/dev/ptmx"
    rm -rf "$root/srv/vivavoce"
    cloned=$SECONDS
    git clone -q "$checkout" "$root/srv/vivavoce"
}

# Each step prints its cell of the table; a failed one prints "failed" and leaves its log in the work folder.
run_server() {
    local started=$SECONDS
    in_root 'cd /srv/vivavoce && echo $$ >/tmp/server.pid && exec make run' >"$work/$suite.run.log" 2>&1 &
    server=$!
    for _ in $(seq 600); do
        if grep -q "^vivavoce is ready" "$work/$suite.run.log"; then echo "$((SECONDS - started)) s"; return; fi
        kill -0 $server 2>/dev/null || break
        sleep 1
    done
    echo failed
}

first_sound() {
    if [ ! -x "$checkout/.venv/bin/python" ] || ! command -v chromium >/dev/null; then echo "not run"; return; fi
    if (cd "$checkout" && PYTHONPATH=tests .venv/bin/python -m benches page-play --plays 1 --url http://127.0.0.1:8080) \
        >"$work/$suite.page.log" 2>&1; then echo "$((SECONDS - cloned)) s"; else echo failed; fi
}

step() {  # name, command, pattern of the line to print
    if in_root "cd /srv/vivavoce && $2" >"$work/$suite.$1.log" 2>&1; then
        grep -oE "$3" "$work/$suite.$1.log" | tail -1 || echo passed
    else
        echo failed
    fi
}

table="| system | Python | make run ready | first sound | phone: gaps over 40 / 60 / 100 ms | say | make test |
|---|---|---|---|---|---|---|"
status=0
for suite in "${suites[@]}"; do
    root=$work/$suite
    trap unmount EXIT
    prepare
    python=$(in_root "python3 -V" | cut -d" " -f2)
    run_server >"$work/$suite.ready"
    ready=$(cat "$work/$suite.ready")
    sound=$(first_sound)
    phone=$(step phone ".venv/bin/vivavoce phone 127.0.0.1 9092 --seconds 8 --out /tmp/heard.wav" "[0-9]+ / [0-9]+ / [0-9]+")
    kill -TERM -- "-$(cat "$root/tmp/server.pid")" 2>/dev/null || true
    wait $server || true
    say=$(step say ".venv/bin/vivavoce say 'Hello, this is vivavoce.' -o /tmp/hello.wav && stat -c '%s bytes' /tmp/hello.wav" "[0-9]+ bytes")
    tests="not run"
    if [ $with_tests = 1 ]; then tests=$(step tests "make test" "[0-9]+ (passed|failed).*"); fi
    unmount
    row="| $suite | $python | $ready | $sound | $phone | $say | $tests |"
    case $row in *failed*) status=1 ;; esac
    table+=$'\n'$row
done
echo "$table"
exit $status
