#!/bin/sh
# Run commands in a clean clone of the repository on a bare Debian: sh tests/fresh.sh ARCHITECTURE PACKAGES COMMANDS
# `make fresh` and `make fresh-arm64` call it. The variable SUITE names the release of Debian. The mirror is that of apt here,
# and pip, cargo and rustup have the variables and certificates of this machine. The base is kept in build/fresh; each run
# begins with it as it was made.
set -eu
architecture=$1 packages=$2 commands=$3 suite=${SUITE:-trixie}
[ "$(id -u)" = 0 ] || { echo "make fresh: debootstrap, mount and chroot need root; as another user run it in a container" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "make fresh: needs debootstrap (apt install debootstrap)" >&2; exit 1; }
if [ "$architecture" != "$(dpkg --print-architecture)" ]; then
  command -v qemu-aarch64-static >/dev/null || { echo "make fresh: needs qemu-user-static and binfmt-support" >&2; exit 1; }
  mountpoint -q /proc/sys/fs/binfmt_misc || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
  update-binfmts --enable qemu-aarch64
  # QEMU 7.2's default processor has SME, and with it the OpenBLAS 0.3.34 of NumPy 2.5.5 multiplies transposed matrices
  # wrongly (without a warning, or with overflow and NaN). A server processor has neither that nor pointer authentication,
  # which is slow to emulate.
  export QEMU_CPU="${QEMU_CPU:-neoverse-n1}"
fi
folder=$PWD/build/fresh base=$PWD/build/fresh/$suite-$architecture run=$PWD/build/fresh/run-$architecture
mkdir -p "$folder"
if [ ! -e "$base/complete" ]; then
  rm -rf "$base"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
  debootstrap --arch="$architecture" --variant=minbase --include="ca-certificates,$packages" "$suite" "$base" "$mirror" \
    >"$base.log" || { tail "$base.log" >&2; exit 1; }
  touch "$base/complete"
fi
rm -rf "$run"
mkdir -p "$run/upper" "$run/work" "$run/root"
export base run commands
# The mounts and processes end with this command.
exec unshare --mount --pid --fork --kill-child sh -euc '
  mount -t overlay -o "lowerdir=$base,upperdir=$run/upper,workdir=$run/work" overlay "$run/root"
  mount -t proc proc "$run/root/proc"
  mount --rbind /dev "$run/root/dev"
  cp -L /etc/resolv.conf "$run/root/etc/resolv.conf"
  cp -L /etc/ssl/certs/ca-certificates.crt "$run/root/etc/ssl/certs/ca-certificates.crt"
  git clone --quiet . "$run/root/src"
  [ ! -d dist ] || cp -r dist "$run/root/src"
  exec chroot "$run/root" env -u PIP_FIND_LINKS HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -euc "cd /src; $commands"'
