#!/bin/sh
# Says on standard error where this task runs, then becomes the program: the process that
# is measured is the process that was looked at.
# With sample 0 it also tells facts of the host.
#   task.sh SAMPLE [NAME=VALUE ...] PROGRAM [ARGUMENT ...]
# Words for the wrapper itself, which the program does not get:
#   PLUMBLINE_OUTPUT=PREFIX  each rank's standard output goes to PREFIX.RANK.out, as what several
#                            tasks print at once to one file comes out mixed
#   PLUMBLINE_PER_NODE=N     tasks of each node: gives the local rank where no launcher does
#   PLUMBLINE_CPUS=LIST:LIST the task of local rank n is bound to the CPUs of the n-th list
#   PLUMBLINE_CUDA_VISIBLE_DEVICES=LIST, PLUMBLINE_ROCR_VISIBLE_DEVICES=LIST
#                            the task of local rank n sees the n-th GPU of the list alone
sample=$1
shift
read -r host </proc/sys/kernel/hostname
# A launcher's own variable first: a batch script's SLURM_PROCID is there under every launcher.
for rank in "$OMPI_COMM_WORLD_RANK" "$JSM_NAMESPACE_RANK" "$PMIX_RANK" "$MV2_COMM_WORLD_RANK" \
    "$MPT_MPI_RANK" "$PMI_RANK" "$PALS_RANKID" "$ALPS_APP_PE" "$FLUX_TASK_RANK" "$SLURM_PROCID" 0
do
    [ -z "$rank" ] || break
done
# The GPUs as the launcher named them: unset is not empty, which means none.
cuda=${CUDA_VISIBLE_DEVICES--} rocr=${ROCR_VISIBLE_DEVICES--}
given='' visible='' output='' per_node='' own='' cpu_lists=''
while :; do
    # A path may have a = too.
    case ${1%%=*} in
        "$1" | '' | [0-9]* | *[!A-Za-z0-9_]*) break ;;
        PLUMBLINE_OUTPUT) output=${1#*=} ;;
        PLUMBLINE_PER_NODE) per_node=${1#*=} ;;
        PLUMBLINE_CPUS) cpu_lists=${1#*=} ;;
        PLUMBLINE_CUDA_VISIBLE_DEVICES | PLUMBLINE_ROCR_VISIBLE_DEVICES) own=${1#PLUMBLINE_} ;;
        CUDA_VISIBLE_DEVICES) given=${cuda:-none} visible=${1#*=} && export "$1" ;;
        ROCR_VISIBLE_DEVICES) given=${rocr:-none} visible=${1#*=} && export "$1" ;;
        *) export "$1" ;;
    esac
    shift
done
# A batch script's SLURM_LOCALID is there under every launcher, too: it counts with its rank alone.
[ "$SLURM_PROCID" = "$rank" ] && slurm=$SLURM_LOCALID || slurm=''
# ALPS and MPT give none, but fill one node after the other (proof.py holds them to it).
for place in "$OMPI_COMM_WORLD_LOCAL_RANK" "$JSM_NAMESPACE_LOCAL_RANK" \
    "$MV2_COMM_WORLD_LOCAL_RANK" "$MVP_COMM_WORLD_LOCAL_RANK" "$MPI_LOCALRANKID" \
    "$PALS_LOCAL_RANKID" "$PMI_LOCAL_RANK" "$FLUX_TASK_LOCAL_ID" "$slurm" \
    "${per_node:+$((rank % per_node))}"
do
    [ -z "$place" ] || break
done
# OSU's programs take the first, which no other launcher's or batch script's variable can overrule.
[ -z "$place" ] || export MV2_COMM_WORLD_LOCAL_RANK="$place" LOCAL_RANK="$place"
# The local rank's of several values. One that has none must not run elsewhere.
of_local_rank() { # SEPARATOR VALUES
    IFS=$1
    set -f
    # shellcheck disable=SC2086
    set -- $2
    [ $# -gt 1 ] || place=0
    if [ "${place:-$#}" -ge $# ]; then
        echo "task.sh: rank $rank on $host: local rank ${place:-unknown} has none of the $# values $*" >&2
        return 1
    fi
    shift "$place"
    echo "$1"
}
if [ "$own" ]; then
    visible=$(of_local_rank , "${own#*=}") || exit
    case $own in
        CUDA*) given=${cuda:-none} && export CUDA_VISIBLE_DEVICES="$visible" ;;
        ROCR*) given=${rocr:-none} && export ROCR_VISIBLE_DEVICES="$visible" ;;
    esac
fi
if [ "$cpu_lists" ]; then
    cpus=$(of_local_rank : "$cpu_lists") && taskset -pc "$cpus" $$ >/dev/null || exit
fi
while read -r key value; do
    case $key in
        Cpus_allowed_list:) cpus=$value ;;
        Mems_allowed_list:) mems=$value ;;
    esac
done </proc/self/status
if [ -z "$given" ]; then
    [ "$cuda" = - ] && given=${rocr:-none} || given=${cuda:-none}
    visible=$given
fi
# The node's GPUs by bus id, in the order in which programs count them, and those that this task may
# open: device cgroups hide the others, and programs count without them.
gpus='' own_gpus=''
gpu() { # BUS_ID DEVICE_FOLDER DEVICE_FILE
    numa='?'
    [ ! -r "$2/numa_node" ] || read -r numa <"$2/numa_node"
    gpus="$gpus $1=$numa"
    [ ! -r "$3" ] || own_gpus="$own_gpus,$1"
}
if [ "$visible" != - ] || [ "$sample" = 0 ]; then
    for folder in /proc/driver/nvidia/gpus/*; do
        [ -r "$folder/information" ] || break
        while IFS=': 	' read -r key value minor; do
            [ "$key $value" != 'Device Minor' ] || break
        done <"$folder/information"
        gpu "${folder##*/}" "/sys/bus/pci/devices/${folder##*/}" "/dev/nvidia$minor"
    done
    nodes=/sys/class/kfd/kfd/topology/nodes number=0
    while [ -d "$nodes/$number" ]; do
        # The kernel lets nothing be read of a GPU behind a device cgroup.
        simds='?' minor='?' bus='?'
        while read -r key value; do
            case $key in
                simd_count) simds=$value ;;
                drm_render_minor) minor=$value ;;
            esac
        done <"$nodes/$number/properties"
        device=/sys/class/drm/renderD$minor/device
        if [ -r "$device/uevent" ]; then
            while IFS='=' read -r key value; do
                [ "$key" != PCI_SLOT_NAME ] || bus=$value
            done <"$device/uevent"
        fi
        # A node of KFD without SIMDs is a processor.
        [ "$simds" = 0 ] || gpu "$bus" "$device" "/dev/dri/renderD$minor"
        number=$((number + 1))
    done
fi 2>/dev/null
own_gpus=${own_gpus#,}
printf 'plumbline-task %s %s %s %s %s %s %s %s\n' "$rank" "$host" "$cpus" "${mems:-?}" "$given" \
    "${visible:-none}" "${place:-?}" "${own_gpus:--}" >&2
# Of each node one task tells; where the local rank is not known, each.
if [ "$sample" = 0 ] && [ "${place:-0}" = 0 ]; then
    packages='' cores='' domains=''
    # Not by `read`: dash reads one byte at a time, for which Linux 5.15 and later give no list.
    for line in $(grep -Hs . /sys/devices/system/cpu/cpu[0-9]*/topology/core_siblings_list \
        /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list \
        /sys/devices/system/node/node[0-9]*/cpulist)
    do
        list=${line##*:} folder=${line%/*}
        case $line in
            */cpulist:*) domains="$domains ${folder##*/node}=$list" ;;
            */core_siblings_list:*) case "$packages " in *" $list "*) ;; *) packages="$packages $list" ;; esac ;;
            *) case "$cores " in *" $list "*) ;; *) cores="$cores $list" ;; esac ;;
        esac
    done
    printf 'plumbline-node %s %s\n' "$host" "packages$packages" "$host" "cores$cores" \
        "$host" "numa$domains" "$host" "gpus$gpus" >&2
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
    # Readable by root alone, and not on every machine.
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
