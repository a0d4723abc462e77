#!/bin/sh
# Says on standard error where this task runs, then becomes the program: the process that
# is measured is the process that was looked at.
# With sample 0 it also tells facts of the host.
#   task.sh SAMPLE [NAME=VALUE ...] PROGRAM [ARGUMENT ...]
# PLUMBLINE_OUTPUT=PREFIX is no variable of the program: each rank's standard output goes to
# PREFIX.RANK.out, as what several tasks print at once to one file comes out mixed.
sample=$1
shift
while read -r key value; do
    case $key in
        Cpus_allowed_list:) cpus=$value ;;
        Mems_allowed_list:) mems=$value ;;
    esac
done </proc/self/status
read -r host </proc/sys/kernel/hostname
# A launcher's own variable first: a batch script's SLURM_PROCID is there under every launcher.
for rank in "$OMPI_COMM_WORLD_RANK" "$JSM_NAMESPACE_RANK" "$PMIX_RANK" "$MV2_COMM_WORLD_RANK" \
    "$MPT_MPI_RANK" "$PMI_RANK" "$PALS_RANKID" "$ALPS_APP_PE" "$FLUX_TASK_RANK" "$SLURM_PROCID" 0
do
    [ -z "$rank" ] || break
done
# The GPUs as the launcher named them: unset is not empty, which means none.
cuda=${CUDA_VISIBLE_DEVICES--} rocr=${ROCR_VISIBLE_DEVICES--}
given='' visible='' output=''
while :; do
    # A path may have a = too.
    case ${1%%=*} in
        "$1" | '' | [0-9]* | *[!A-Za-z0-9_]*) break ;;
        PLUMBLINE_OUTPUT) output=${1#*=} ;;
        CUDA_VISIBLE_DEVICES) given=${cuda:-none} visible=${1#*=} && export "$1" ;;
        ROCR_VISIBLE_DEVICES) given=${rocr:-none} visible=${1#*=} && export "$1" ;;
        *) export "$1" ;;
    esac
    shift
done
if [ -z "$given" ]; then
    [ "$cuda" = - ] && given=${rocr:-none} || given=${cuda:-none}
    visible=$given
fi
printf 'plumbline-task %s %s %s %s %s %s\n' \
    "$rank" "$host" "$cpus" "${mems:-?}" "$given" "${visible:-none}" >&2
if [ "$sample" = 0 ]; then
    fact() {
        if [ -r "$2" ] && read -r value <"$2"; then
            printf 'plumbline-host %s %s %s\n' "$host" "$1" "$value" >&2
        fi
    }
    fact kernel /proc/sys/kernel/osrelease
    fact governor /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
    fact firmware /sys/class/dmi/id/bios_version
    fact board /sys/class/dmi/id/product_name
    fact nvidia_driver /sys/module/nvidia/version
    fact amdgpu_driver /sys/module/amdgpu/version
    fact transparent_hugepages /sys/kernel/mm/transparent_hugepage/enabled
    fact numa_balancing /proc/sys/kernel/numa_balancing
    fact smt /sys/devices/system/cpu/smt/control
    while IFS=: read -r key value; do
        case $key in
            'model name'*) [ "$model" ] || printf 'plumbline-host %s cpu_model%s\n' "$host" "$value" >&2; model=1 ;;
            microcode*) [ "$microcode" ] || printf 'plumbline-host %s microcode%s\n' "$host" "$value" >&2; microcode=1 ;;
        esac
        # The other CPUs are alike.
        [ -z "$model" ] || [ -z "$microcode" ] || break
    done </proc/cpuinfo
    if read -r key value </proc/meminfo; then
        printf 'plumbline-host %s memory %s\n' "$host" "$value" >&2
    fi
    # Readable by root alone, and not on every machine; one task per node would do, but
    # which task is the first of its node is known to no portable variable.
    if [ "$rank" = 0 ] && [ -r /sys/firmware/dmi/tables/DMI ] && command -v dmidecode >/dev/null; then
        dmidecode -t memory 2>/dev/null | while IFS=: read -r key value; do
            case $key in
                *'Configured Memory Speed') printf 'plumbline-host %s memory_speed%s\n' "$host" "$value" >&2; break ;;
            esac
        done
    fi
fi
[ -z "$output" ] || exec >"$output.$rank.out"
exec "$@"
