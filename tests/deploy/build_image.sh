#!/usr/bin/env bash
# Builds the image without a container engine's daemon, by buildah in a chroot, and tries it. Prints its size.
#
#     sudo tests/deploy/build_image.sh [TARGET]          cpu, or cuda
#
# Needs root, buildah and debootstrap, as Debian has them. Where registries of images cannot be reached, BASE is made
# here by debootstrap, with this system's certificates and settings of pip. WORK is another folder for it.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:-cpu}
work=${WORK:-/var/tmp/vivavoce-image}
root=$work/base
mkdir -p "$work"
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
storage=(--root "$work/storage" --runroot "$work/run")

make_base() {
    if [ ! -e "$root/.complete" ]; then
        rm -rf "$root"
        debootstrap --variant=minbase trixie "$root" ${MIRROR:-} >"$work/debootstrap.log" 2>&1
        rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
        touch "$root/.complete"
    fi
    mkdir -p "$root/etc/ssl"
    # As Debian's own slim images: no manuals and no translations.
    for files in doc man locale info; do
        rm -rf "$root/usr/share/$files"/*
        echo "path-exclude /usr/share/$files/*" >>"$root/etc/dpkg/dpkg.cfg.d/slim"
    done
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/host.crt"
    printf '[global]\ncert = /etc/ssl/host.crt\n' >"$root/etc/pip.conf"
    container=$(buildah "${storage[@]}" from scratch)
    buildah "${storage[@]}" add -q "$container" "$root" / >/dev/null
    buildah "${storage[@]}" commit -q "$container" localhost/vivavoce-base >/dev/null
    buildah "${storage[@]}" rm "$container" >/dev/null
}

base=${BASE:-localhost/vivavoce-base}
if [ -z "${BASE:-}" ] && ! buildah "${storage[@]}" inspect --type image localhost/vivavoce-base >/dev/null 2>&1; then make_base; fi
buildah "${storage[@]}" build --quiet --format docker --build-arg "BASE=$base" --target "$target" \
    -f examples/deploy/image/Dockerfile -t "localhost/vivavoce:$target" . >"$work/build.log" 2>&1 || { tail -40 "$work/build.log"; exit 1; }

container=$(buildah "${storage[@]}" from "localhost/vivavoce:$target")
mounted=$(buildah "${storage[@]}" mount "$container")
trap 'buildah "${storage[@]}" umount "$container" >/dev/null; buildah "${storage[@]}" rm "$container" >/dev/null' EXIT
in_image() { buildah "${storage[@]}" run "$container" -- "$@"; }
echo "base system: $(du -sm "$root" | cut -f1) MB"
echo "image: $(du -smx "$mounted" | cut -f1) MB, user $(buildah "${storage[@]}" inspect --type image --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.StopSignal}}' "localhost/vivavoce:$target")"
in_image vivavoce --version
in_image python3 -c "import os; assert os.getuid() == 10001; open('/tmp/a', 'w')"
if in_image sh -c 'touch /opt/vivavoce/a' 2>/dev/null; then echo "the user may change the program"; exit 1; fi
if [ "$target" = cuda ]; then  # what Triton does before its first kernel
    in_image sh -c 'printf "#include <Python.h>\n" >/tmp/launcher.c && gcc -shared -fPIC -o /tmp/launcher.so \
        -I"$(python3 -c "import sysconfig; print(sysconfig.get_paths(scheme=\"posix_prefix\")[\"include\"])")" /tmp/launcher.c'
fi
in_image vivavoce say "Hello, this is vivavoce." -o /tmp/hello.wav
in_image python3 -c "import os; assert os.path.getsize('/tmp/hello.wav') > 40_000; print('say: spoken')"
in_image sh -c 'vivavoce keys add me --keys-file $VIVAVOCE_ACCESS_KEYS_FILE --scope admin >/tmp/key
    vivavoce serve --audiosocket-port 0 >/tmp/out 2>/tmp/log & server=$!
    for _ in $(seq 100); do grep -q "is ready" /tmp/out && break; sleep 0.2; done
    python3 - <<END
import sys, urllib.request as u
open_url = u.build_opener(u.ProxyHandler({})).open
assert open_url("http://127.0.0.1:8080/healthz").status == 200
key = open("/tmp/key").read().split()[-1]
words = open("/tmp/key").read().split()
key = next(word for word in words if word.startswith("vv_"))
ask = u.Request("http://127.0.0.1:8080/metrics", headers={"authorization": "Bearer " + key})
assert b"process_resident_memory_bytes" in open_url(ask).read()
print("serve: healthy, metrics with the key")
END
    kill $server; wait $server && echo "serve: ended with 0"; tail -1 /tmp/log'
