#!/bin/sh
# Exits with 64 and the reason if a module is not loaded.
#   loaded.sh WHERE MODULE ...
# ReFrame's job script continues after a failed module load, and not all exit codes show the failure:
# Cray's Environment Modules 3.2 exits with 0 even if a module conflicts with another loaded version,
# which 3.2 does not swap. Environment Modules and Lmod list the loaded modules in LOADEDMODULES
# (module(1), "ENVIRONMENT"). A module without a version matches any version.
where=$1
shift
for module in "$@"; do
    case ":$LOADEDMODULES:" in
        *":$module:"* | *":$module/"*) continue ;;
    esac
    echo "plumbline: module $module did not load on $(uname -n), where ${LOADEDMODULES:-nothing} is" \
        "loaded: correct the modules of $where in its system file; what the module conflicts with" \
        "is unloaded there in prepare_cmds" >&2
    exit 64
done
