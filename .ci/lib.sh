# Functions of .ci/run. Every process and mount made here ends in finish().
WORK=$(mktemp -d "${TMPDIR:-/tmp}/agentloop-ci.XXXXXX")
MIRROR=${DEBIAN_MIRROR:-} # empty: the one that debootstrap itself takes
ENGINE_PID=
SUMMARY=()

stage() {
  local name=$1 begin=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  # Called plainly, never in a condition: `set -e` would be off inside it.
  "$@"
  SUMMARY+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
}

finish() {
  local status=$?
  trap - EXIT
  if [ -n "$ENGINE_PID" ] && kill "$ENGINE_PID" 2>/dev/null; then
    wait "$ENGINE_PID" 2>/dev/null || true
  fi
  [ "$status" = 0 ] || { [ ! -s "$WORK/dockerd.log" ] || { echo "--- end of dockerd.log"; tail -n 20 "$WORK/dockerd.log"; }; }
  rm -rf --one-file-system "$WORK"
  printf '\n=== stages\n'
  printf '%s\n' "${SUMMARY[@]}"
  printf '%5d s  in all: %s\n' "$SECONDS" "$([ "$status" = 0 ] && echo passed || echo "FAILED, status $status")"
  exit "$status"
}

install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || { echo "all there: $*"; return; }
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# Uses an engine that answers; else starts one with a log of its own, after a crashed one's pid files are out of the way.
start_engine() {
  local waited=0 file pid
  if docker info >/dev/null 2>&1; then docker version --format 'an engine runs: {{.Server.Version}}'; return; fi
  for file in /var/run/docker.pid /run/docker/containerd/containerd.pid; do
    pid=$(cat "$file" 2>/dev/null || true)
    if [ -n "$pid" ] && ! grep -qs -e dockerd -e containerd "/proc/$pid/comm"; then rm -f "$file"; fi
  done
  setsid dockerd >"$WORK/dockerd.log" 2>&1 </dev/null &
  ENGINE_PID=$!
  until docker info >/dev/null 2>&1; do
    kill -0 "$ENGINE_PID" 2>/dev/null && [ "$waited" -lt 60 ] || { echo "dockerd does not start" >&2; return 1; }
    sleep 1
    waited=$((waited + 1))
  done
  docker version --format 'engine started: {{.Server.Version}}'
}

# No image registry is assumed: the public image named in the recipe's FROM is made from Debian's own packages.
import_base() {
  local base suite
  base=$(sed -n 's/^FROM //p' "$1")
  suite=$(echo "$base" | sed 's/^debian:\([a-z]*\)-slim$/\1/')
  if docker image inspect "$base" >/dev/null 2>&1; then echo "$base is there"; return; fi
  debootstrap --variant=minbase "$suite" "$WORK/base" ${MIRROR:+"$MIRROR"} >"$WORK/debootstrap.log" || { tail "$WORK/debootstrap.log"; return 1; }
  rm -rf "$WORK"/base/var/cache/apt/archives/*.deb "$WORK"/base/var/lib/apt/lists/*
  tar -C "$WORK/base" -c . | docker import - "$base"
  rm -rf "$WORK/base"
}

# What the first run would do too, but here its time is counted by itself.
build_image() {
  .venv/bin/python - <<'PYTHON'
from agentloop.catalog import root
from agentloop.sandbox.engine import connect, ensure_image

client = connect()
print("image", ensure_image(client, root() / "sandboxes" / "docker", print))
client.close()
PYTHON
}

# The command works on another Python, where this machine has one: help, one run with a scripted model, its replay.
smoke() {
  local version=$1 python venv=$WORK/venv-$1
  python=$(.uv/bin/uv python find --no-python-downloads "$version" 2>/dev/null) ||
    python=$(compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version.*/bin/python" | tail -n 1) || true
  if [ -z "$python" ]; then
    echo "skipped: this machine has no Python $version"
    return
  fi
  UV_PROJECT_ENVIRONMENT=$venv .uv/bin/uv sync --locked --all-extras --quiet --python "$python"
  "$venv/bin/agentloop" list catalog
  "$venv/bin/python" -m pytest tests/packaging -k run_here
  rm -rf "$venv"
}

# What a new user has: Debian's minimal system and the README's one apt line. The checkout, the certificates and the
# settings of pip and uv come along; nothing else of this machine does. First as root, then as an ordinary user.
bare_system() {
  local root=$WORK/bare
  debootstrap --variant=minbase --include=ca-certificates,git,make,python3-venv bookworm "$root" ${MIRROR:+"$MIRROR"} \
    >"$WORK/debootstrap.log" || { tail "$WORK/debootstrap.log"; return 1; }
  chroot "$root" useradd --create-home user
  settings_into "$root"
  checkout_into "$root/root/agentloop"
  checkout_into "$root/home/user/agentloop"
  weights_into "$root/root/.cache" "$root/home/user/.cache"
  chroot "$root" chown -R user:user /home/user
  echo "--- as root"
  inside "$root" /root make demo
  echo "--- as an ordinary user"
  inside "$root" /home/user setpriv --reuid user --regid user --clear-groups make demo
}

# Own mounts and processes: both are gone when the command ends, however it ends.
inside() {
  local root=$1 home=$2 variable passed=()
  shift 2
  for variable in $(compgen -e); do
    case $variable in
      PIP_* | UV_* | *_proxy | *_PROXY | SSL_CERT_FILE | SSL_CERT_DIR | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE)
        passed+=("$variable=${!variable}") ;;
    esac
  done
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child -- sh -c '
      mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind /sys "$1/sys" || exit 1
      root=$1 home=$2; shift 2
      exec chroot "$root" env -i "$@"' sh "$root" "$home" \
    HOME="$home" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${passed[@]}" \
    sh -c 'cd "$HOME/agentloop" && exec "$@"' sh "$@"
}

settings_into() {
  local root=$1 file
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  for file in /etc/pip.conf /etc/uv/uv.toml /etc/ssl/certs/ca-certificates.crt ${SSL_CERT_FILE:-} ${PIP_CERT:-} ${REQUESTS_CA_BUNDLE:-}; do
    [ ! -f "$file" ] || install -D -m 644 "$file" "$root$file"
  done
  for file in pip/pip.conf uv/uv.toml; do
    [ -f "$HOME/.config/$file" ] || continue
    install -D -m 600 "$HOME/.config/$file" "$root/root/.config/$file"
    install -D -m 600 "$HOME/.config/$file" "$root/home/user/.config/$file"
  done
}

# The files as they are now, without what git ignores: what a clone would have once this is committed.
checkout_into() {
  mkdir -p "$1"
  git -c safe.directory='*' ls-files -z --cached --others --exclude-standard \
    | tar --null --ignore-failed-read --files-from=- -c | tar -x -C "$1"
}

# The weights alone: fetching half a gigabyte twice more would show nothing new.
weights_into() {
  local from=${AGENTLOOP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agentloop}/weights to
  [ -d "$from" ] || return 0
  for to in "$@"; do mkdir -p "$to/agentloop" && cp -a --reflink=auto "$from" "$to/agentloop/"; done
}
