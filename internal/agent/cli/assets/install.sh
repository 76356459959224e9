# install KIND FOLDER REGISTRY PLACES RUNTIME MAJOR MINOR PACKAGE...: puts packages into a folder. PLACES are folders to look for programs in first.
kind=$1 folder=$2 registry=$3 places=$4 runtime=$5 major=$6 minor=$7
shift 7
mkdir -p "$folder"
PATH="${places:+$places:}$PATH"
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -f "$certificates" ]; then
  export NODE_EXTRA_CA_CERTS="$certificates" PIP_CERT="$certificates" SSL_CERT_FILE="$certificates"
fi
case $kind in
npm)
  if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
    echo "there is no npm on the system path of this machine: install Node with npm, or name its folder in sandbox.local.tools" >&2
    exit 1
  fi
  cd "$folder"
  exec npm install --prefix "$folder" --registry "$registry" --cache /tmp/npm --ignore-scripts --omit=dev --no-save --no-audit --no-fund --no-update-notifier "$@"
  ;;
pypi)
  python=
  for name in "$runtime" "python$major.$minor" "python$major.$((minor + 1))" "python$major.$((minor + 2))" "python$major.$((minor + 3))"; do
    if command -v "$name" >/dev/null && "$name" -c "import sys; sys.exit(sys.version_info < ($major, $minor))"; then
      python=$name
      break
    fi
  done
  if [ -z "$python" ]; then
    echo "there is no Python $major.$minor or newer on the system path of this machine: install one, or name its folder in sandbox.local.tools" >&2
    exit 1
  fi
  if command -v uv >/dev/null; then
    exec uv pip install --no-cache --python "$python" --target "$folder" --default-index "$registry" "$@"
  fi
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv /tmp/installer >/dev/null 2>&1 || { echo "there is neither uv nor pip for $python: install one" >&2; exit 1; }
    python=/tmp/installer/bin/python
  fi
  exec "$python" -m pip install --no-cache-dir --disable-pip-version-check --no-input --progress-bar off --quiet --no-compile --target "$folder" --index-url "$registry" "$@"
  ;;
esac
