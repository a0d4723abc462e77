#!/bin/sh
# Ends with 64 and the reason where a module is not loaded.
#   loaded.sh WHERE MODULE ...
# ReFrame's job script goes on after a module load that failed, and an exit code does not show it
# everywhere: Cray's Environment Modules 3.2 exits 0, also where a module conflicts with a loaded
# version of itself, which 3.2 does not swap. Environment Modules and Lmod list what is loaded in
# LOADEDMODULES (module(1), "ENVIRONMENT"). A module without a version matches any.
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
