() {
    # module(1) of Cray's Environment Modules 3.2, of Environment Modules from 4 on, and of Lmod, as
    # far as job scripts use it. Every module is there but those in FACILITY_NO_MODULES; a module
    # conflicts with the other versions of itself. Release 3.2 exits 0 whatever happens.
    local action=$1 name loaded old keep status=0
    shift
    export LOADEDMODULES=${LOADEDMODULES-$FACILITY_MODULES_LOADED}
    for name; do
        old='' keep=''
        for loaded in ${LOADEDMODULES//:/ }; do
            case $action:$loaded in
                load:"$name" | load:"$name"/*) continue 2 ;;
                load:"${name%%/*}"/* | unload:"$name" | unload:"$name"/*) old=$loaded ;;
                *) keep=$keep:$loaded ;;
            esac
        done
        case $action in
            unload) LOADEDMODULES=${keep#:} && continue ;;
            load) ;;
            *) echo "module: no stand-in for $action" >&2 && return 1 ;;
        esac
        case $FACILITY_MODULES:${old:+conflict}:$([[ :$FACILITY_NO_MODULES: == *":$name:"* ]] && echo gone) in
            *:: | lmod:conflict:) LOADEDMODULES=${keep#:}:$name ;;
            3.2:*:gone) echo "ModuleCmd_Load.c(244):ERROR:105: Unable to locate a modulefile for '$name'" >&2 ;;
            3.2:*)
                echo "$name(9):ERROR:150: Module '$name' conflicts with the currently loaded module(s) '$old'" >&2
                echo "$name(9):ERROR:102: Tcl command execution failed: conflict ${name%%/*}" >&2 ;;
            lmod:*)
                echo "Lmod has detected the following error:  The following module(s) are unknown: \"$name\"" >&2
                status=1 ;;
            envmod:*:)
                echo "ERROR: Module cannot be loaded due to a conflict." >&2
                echo "HINT: Might try \"module unload ${name%%/*}\" first." >&2
                status=1 ;;
            *) echo "ERROR: Unable to locate a modulefile for '$name'" >&2 && status=1 ;;
        esac
        LOADEDMODULES=${LOADEDMODULES#:}
    done
    return $status
}
