# `. ./env.sh` puts ReFrame on PATH with Plumbline's configuration: `reframe -c checks/ -r` then works.
# Without .venv (`make setup`) it configures the ReFrame that is on PATH already, such as a module's.
# bash and zsh can source it from any folder, other shells only from the project's folder.
if [ -n "${BASH_VERSION:-}" ]; then
    plumbline_root=${BASH_SOURCE[0]}
elif [ -n "${ZSH_VERSION:-}" ]; then
    eval 'plumbline_root=${(%):-%x}'
else
    plumbline_root=./env.sh
fi
plumbline_root=$(CDPATH='' cd -- "$(dirname -- "$plumbline_root")" && pwd)

if [ -x "$plumbline_root/.venv/bin/reframe" ]; then
    PATH=$plumbline_root/.venv/bin:$PATH
elif command -v reframe >/dev/null 2>&1; then
    case ":${PYTHONPATH:-}:" in
        *":$plumbline_root/reframe:"*) ;;
        *) PYTHONPATH=$plumbline_root/reframe${PYTHONPATH:+:$PYTHONPATH} ;;
    esac
    export PYTHONPATH
else
    echo "plumbline: $plumbline_root/.venv is not set up: run \`make setup\` there" >&2
    unset plumbline_root
    return 2 2>/dev/null || exit 2
fi
# Not RFM_CONFIG_FILES, which -C replaces, and which may have the site's own files.
case ":${RFM_CONFIG_PATH:-}:" in
    *":$plumbline_root/reframe:"*) ;;
    *) RFM_CONFIG_PATH=$plumbline_root/reframe${RFM_CONFIG_PATH:+:$RFM_CONFIG_PATH} ;;
esac
export PATH RFM_CONFIG_PATH
# To ReFrame, one that is set and empty means: no configuration at all.
[ -n "${RFM_CONFIG_FILES:-}" ] || unset RFM_CONFIG_FILES
unset plumbline_root
