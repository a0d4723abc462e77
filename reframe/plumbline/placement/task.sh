#!/bin/sh
# Reports on standard error where this task runs, then becomes the program, or its parent where it
# reads counters of the node around it, so that what is reported is what the measured process may
# use. With sample 0 it also reports facts of the host.
#   task.sh SAMPLE [NAME=VALUE ...] PROGRAM [ARGUMENT ...]
# Words for the wrapper itself, which the program does not get:
#   PLUMBLINE_OUTPUT=PREFIX  each rank's standard output goes to PREFIX.RANK.out, as the output of
#                            several tasks in one file would be mixed
#   PLUMBLINE_PER_NODE=N     tasks on each node: gives the local rank if the launcher does not
#   PLUMBLINE_CPUS=LIST:LIST the task of local rank n is bound to the CPUs of the n-th list
#   PLUMBLINE_NETWORK=SECONDS the first task of each node reports what the node's network interfaces
#                            have moved: so many seconds before the program, at its start and its end
#   PLUMBLINE_DEVICES=VENDOR:N the node's GPUs (cuda, rocm) are read before the first run and after each,
#                            and while it runs in the first N runs, which warm up
#   PLUMBLINE_CUDA_VISIBLE_DEVICES=LIST, PLUMBLINE_ROCR_VISIBLE_DEVICES=LIST
#                            the task of local rank n sees only the n-th GPU of the list
sample=$1
shift
read -r host </proc/sys/kernel/hostname
# A launcher's own variable first: a batch script sets SLURM_PROCID under every launcher.
for rank in "$OMPI_COMM_WORLD_RANK" "$JSM_NAMESPACE_RANK" "$PMIX_RANK" "$MV2_COMM_WORLD_RANK" \
    "$MPT_MPI_RANK" "$PMI_RANK" "$PALS_RANKID" "$ALPS_APP_PE" "$FLUX_TASK_RANK" "$SLURM_PROCID" 0
do
    [ -z "$rank" ] || break
done
# The GPUs that the launcher named. An empty list means none; an unset one means all.
cuda=${CUDA_VISIBLE_DEVICES--} rocr=${ROCR_VISIBLE_DEVICES--}
# ROCm counts these, and CUDA_VISIBLE_DEVICES, in what ROCR_VISIBLE_DEVICES leaves.
unset HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL
# Of a user's environment: Cray MPICH would give other ranks in MPI_Init than are reported here, and
# OpenMP's runtimes (LLVM's and Intel's too), OpenBLAS, oneMKL and BLIS would overrule the words below.
unset MPICH_RANK_REORDER_METHOD
unset OMP_DYNAMIC OMP_THREAD_LIMIT OMP_MAX_ACTIVE_LEVELS KMP_AFFINITY GOMP_CPU_AFFINITY KMP_LIBRARY \
    KMP_HW_SUBSET KMP_PLACE_THREADS KMP_DEVICE_THREAD_LIMIT KMP_ALL_THREADS OPENBLAS_NUM_THREADS \
    GOTO_NUM_THREADS MKL_NUM_THREADS MKL_DOMAIN_NUM_THREADS BLIS_NUM_THREADS
# Of the same: they give a program a share of a GPU, or make it wait for each kernel and each copy.
unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE HSA_CU_MASK ROC_GLOBAL_CU_MASK CUDA_LAUNCH_BLOCKING \
    HIP_LAUNCH_BLOCKING AMD_SERIALIZE_KERNEL AMD_SERIALIZE_COPY
given='' visible='' output='' per_node='' own='' cpu_lists='' network='' devices=''
while :; do
    # The path of a program may also contain a =.
    case ${1%%=*} in
        "$1" | '' | [0-9]* | *[!A-Za-z0-9_]*) break ;;
        PLUMBLINE_OUTPUT) output=${1#*=} ;;
        PLUMBLINE_PER_NODE) per_node=${1#*=} ;;
        PLUMBLINE_CPUS) cpu_lists=${1#*=} ;;
        PLUMBLINE_NETWORK) network=${1#*=} ;;
        PLUMBLINE_DEVICES) devices=${1#*=} ;;
        PLUMBLINE_CUDA_VISIBLE_DEVICES | PLUMBLINE_ROCR_VISIBLE_DEVICES) own=${1#PLUMBLINE_} ;;
        CUDA_VISIBLE_DEVICES) given=${cuda:-none} visible=${1#*=} && export "$1" ;;
        ROCR_VISIBLE_DEVICES) given=${rocr:-none} visible=${1#*=} && export "$1" && unset CUDA_VISIBLE_DEVICES ;;
        *) export "$1" ;;
    esac
    shift
done
# A batch script also sets SLURM_LOCALID under every launcher: it counts only with its own rank.
[ "$SLURM_PROCID" = "$rank" ] && slurm=$SLURM_LOCALID || slurm=''
# ALPS and MPT set no local rank, but fill one node after the other (proof.py checks that).
for place in "$OMPI_COMM_WORLD_LOCAL_RANK" "$JSM_NAMESPACE_LOCAL_RANK" \
    "$MV2_COMM_WORLD_LOCAL_RANK" "$MVP_COMM_WORLD_LOCAL_RANK" "$MPI_LOCALRANKID" \
    "$PALS_LOCAL_RANKID" "$PMI_LOCAL_RANK" "$FLUX_TASK_LOCAL_ID" "$slurm" \
    "${per_node:+$((rank % per_node))}"
do
    [ -z "$place" ] || break
done
# OSU's programs read the first one before any variable of a launcher or batch script.
[ -z "$place" ] || export MV2_COMM_WORLD_LOCAL_RANK="$place" LOCAL_RANK="$place"
# MVAPICH2 reads the first, MVAPICH the second: both bind again in MPI_Init, after the report.
export MV2_ENABLE_AFFINITY=0 MVP_ENABLE_AFFINITY=0
# So does Open MPI 4, if another launcher than its mpirun started it on all CPUs of the node, and the
# user set a policy (ess_base_fns.c).
export OMPI_MCA_hwloc_base_binding_policy=none
unset OMPI_MCA_hwloc_base_bind_to_core OMPI_MCA_hwloc_base_bind_to_socket
# Omni-Path's PSM 2 and 3 bind a task that may use every core to one of them.
export HFI_NO_CPUAFFINITY=1 PSM3_NO_CPUAFFINITY=1
# Prints the value of the local rank. A task without one must not run elsewhere.
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
        ROCR*) given=${rocr:-none} && export ROCR_VISIBLE_DEVICES="$visible" && unset CUDA_VISIBLE_DEVICES ;;
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
# Slurm sets both for AMD's GPUs, unless gres.conf has AutoDetect or Flags: HIP would count CUDA's.
case $devices:$rocr in
    rocm:*:-) ;;
    rocm:*) unset CUDA_VISIBLE_DEVICES && cuda=- ;;
esac
if [ -z "$given" ]; then
    [ "$cuda" = - ] && given=${rocr:-none} || given=${cuda:-none}
    visible=$given
fi
# The node's GPUs by bus id, in the order in which programs count them, and those that this task can
# open: device cgroups hide the others, which programs then do not count.
gpus='' modes='' own_gpus='' hidden='' processors=' ' fabric=' '
gpu() { # BUS_ID DEVICE_FOLDER DEVICE_FILE
    numa='?' compute='' memory=''
    [ ! -r "$2/numa_node" ] || read -r numa <"$2/numa_node"
    gpus="$gpus $1=$numa"
    # Of AMD's, its first partition has these.
    [ ! -r "$2/current_compute_partition" ] || read -r compute <"$2/current_compute_partition"
    [ ! -r "$2/current_memory_partition" ] || read -r memory <"$2/current_memory_partition"
    [ -z "$compute" ] || modes="$modes $compute${memory:+/$memory}"
    [ -r "$3" ] && own_gpus="$own_gpus,$1" || hidden=1
}
if [ "$visible" != - ] || [ "$sample" = 0 ]; then
    for folder in /proc/driver/nvidia/gpus/*; do
        [ -r "$folder/information" ] || break
        while IFS=': 	' read -r key value minor; do
            [ "$key $value" != 'Device Minor' ] || break
        done <"$folder/information"
        gpu "${folder##*/}" "/sys/bus/pci/devices/${folder##*/}" "/dev/nvidia$minor"
        # A folder for each instance into which MIG divides it.
        for instance in "/proc/driver/nvidia/capabilities/gpu$minor"/mig/gi*; do
            [ ! -d "$instance" ] || modes="$modes MIG"
        done
    done
    nodes=/sys/class/kfd/kfd/topology/nodes number=0
    while [ -d "$nodes/$number" ]; do
        # The kernel shows nothing of a GPU that a device cgroup hides.
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
        # A KFD node without SIMDs is a processor.
        [ "$simds" = 0 ] && processors="$processors$number " || gpu "$bus" "$device" "/dev/dri/renderD$minor"
        for link in "$nodes/$number"/io_links/*/properties; do
            type='' end=''
            while read -r key value; do
                case $key in type) type=$value ;; node_to) end=$value ;; esac
            done <"$link"
            # CRAT_IOLINK_TYPE_XGMI of the kernel's kfd_crat.h: Infinity Fabric.
            case $type:$processors in 11:*" $end "*) fabric="$fabric$bus " ;; esac
        done
        number=$((number + 1))
    done
fi 2>/dev/null
own_gpus=${own_gpus#,}
printf 'plumbline-task %s %s %s %s %s %s %s %s\n' "$rank" "$host" "$cpus" "${mems:-?}" "$given" \
    "${visible:-none}" "${place:-?}" "${own_gpus:--}" >&2
# What tunes the libraries below the program, as it gets it: in full of the first eight tasks, which may
# be the only ones that differ, and of one on each node; of each task a checksum, which shows any other
# difference. Not what a launcher gives to a rank, a node or a job, or places tasks with, nor what may be
# secret. A launcher may mix the texts of tasks that print more than 4096 bytes.
if [ "$sample" = 0 ]; then
    tuning=$(awk 'BEGIN {
        for (name in ENVIRON) {
            value = ENVIRON[name]
            if (value == "" || name !~ "^(UCX|UCC|HCOLL|SHARP|FI|CXI|PSM[23]?|HFI|IPATH|MLX[45]|RDMAV" \
                "|IBV|OMPI_MCA|PRTE_MCA|PMIX_MCA|MPICH|MPIR_CVAR|MPIR_PARAM|ROMIO|I_MPI|MV2|MVP|PAMI" \
                "|NCCL|OFI_NCCL|RCCL|MSCCL|OMP|KMP|GOMP|LIBOMP|LIBOMPTARGET|NVCOMPILER|CRAY_ACC|CRAY_OMP" \
                "|MKL|OPENBLAS|BLIS|MALLOC|HUGETLB|CUDA|HSA|HIP|ROC|AMD|GPU|IOR_HINT|MPIO_DIRECT)_" \
                "|^MPI_(BUF|COLL_|CONNECTIONS|CUDA_|DEFAULT_SINGLE|GATHER_|GRU_|HUGEPAGE|IB_|MAP|MEM|MSG_" \
                "|NAP|NUM_QUICKS|OPA_|PREFAULT|REQUEST_MAX|SHARED|SUPERPAGE|UD_|USE_|WIN_MODE|XPMEM)" \
                "|^(GLIBC_TUNABLES|LD_PRELOAD|XLSMPOPTS|SLURM_NETWORK|SLURM_[CG]PU_FREQ(_REQ)?)$" ||
                name ~ "^(OMPI|PRTE)_MCA_(ess|orte|prte|rmaps|hwloc|initial_wdir|num_procs|cpu_type)" \
                "|^I_MPI_(HYDRA|INFO|INTERNAL|PIN|RETURN)|INTERFACE_HOSTNAME$|_COMM_WORLD_|_UUID$" \
                "|_PID_BASE$|_VISIBLE_DEVICES$|^NCCL_(COMM_|HOST)ID$" ||
                toupper(name) ~ "TOKEN|SECRET|PASSW|CREDENTIAL|APIKEY|_KEY$") continue
            gsub(/[\r\n]+/, " ", value)
            if (toupper(value) ~ "TOKEN|SECRET|PASSW|CREDENTIAL|://[^/]*:[^/]*@") value = "(not recorded)"
            for (at = ++count; at > 1 && names[at - 1] > name; at--) names[at] = names[at - 1]
            names[at] = name
            values[name] = value
        }
        for (at = 1; at <= count; at++) print names[at], values[names[at]]
    }' 2>/dev/null) && sum=$(printf %s "$tuning" | cksum 2>/dev/null) && {
        printf '= %s\n' "${sum%% *}"
        [ "${place:-0}" != 0 ] && [ "$rank" -ge 8 ] || printf '%s\n' "$tuning"
    } | awk -v report="plumbline-variable $rank" '{
        value = substr($0, length($1) + 2)
        if (length(value) > 200) value = substr(value, 1, 200) "... (" length(value) " characters)"
        line = report " " $1 " " value
        if ((size += length(line)) <= 3500) print line; else more++
    } END { if (more) print report, "(more)", more }' >&2
fi
# One task reports the node; each task if the local rank is not known.
if [ "$sample" = 0 ] && [ "${place:-0}" = 0 ]; then
    packages='' cores='' domains=''
    # Not with `read`: dash reads byte by byte, and Linux 5.15 and later then give no list.
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
        "$host" "numa$domains" "$host" "gpus$gpus" "$host" "modes$modes" >&2
    fact() {
        if [ -r "$2" ] && read -r value <"$2" 2>/dev/null; then
            printf 'plumbline-host %s %s %s\n' "$host" "$1" "$value" >&2
        fi
    }
    fact kernel /proc/sys/kernel/osrelease
    for folder in /sys/class/net/*; do
        name=${folder##*/}
        # Bridges, and the interfaces of virtual machines, are the host's own.
        [ "$name" != lo ] && [ ! -e "$folder/bridge" ] && [ ! -e "$folder/tun_flags" ] || continue
        fact "net.$name.mtu" "$folder/mtu"
        fact "net.$name.state" "$folder/operstate"
        # Another one shows another node under this name: the hardware's own, or one that was set (3),
        # and not one that is drawn anew at each boot.
        read -r origin 2>/dev/null <"$folder/addr_assign_type" && read -r type <"$folder/type" || origin=''
        case $origin:$type in 0:1 | 3:1) fact "net.$name.address" "$folder/address" ;; esac
        # A virtual interface has a nominal speed: veth(4) always 10 Gbit/s.
        if [ -e "$folder/device" ] || [ -e "$folder/bonding" ]; then
            fact "net.$name.speed" "$folder/speed"
        fi
        rdma='' lower=''
        for device in "$folder"/device/infiniband/* "$folder"/lower_*; do
            [ -e "$device" ] || continue
            case $device in
                */lower_*) lower="$lower ${device##*/lower_}" ;;
                *) rdma="$rdma ${device##*/}" ;;
            esac
        done
        # Of a bond and a VLAN.
        [ -z "$lower" ] || printf 'plumbline-host %s net.%s.lower%s\n' "$host" "$name" "$lower" >&2
        [ -z "$rdma" ] || printf 'plumbline-host %s net.%s.rdma%s\n' "$host" "$name" "$rdma" >&2
    done
    for folder in /sys/class/infiniband/*/ports/*; do
        device=${folder#/sys/class/infiniband/}
        name=${device%%/*}:${folder##*/}
        fact "net.$name.rate" "$folder/rate"
        fact "net.$name.state" "$folder/state"
        fact "net.$name.address" "${folder%/ports/*}/node_guid"
    done
    # The CPUs' limits, in kHz: one, or the least and the greatest.
    least='' most=''
    for limit in $(grep -hs . /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_max_freq); do
        [ "${least:-$limit}" -lt "$limit" ] || least=$limit
        [ "${most:-$limit}" -gt "$limit" ] || most=$limit
    done
    [ "$least" = "$most" ] || least=$least-$most
    [ -z "$least" ] || printf 'plumbline-host %s cpu.max_frequency %s\n' "$host" "$least" >&2
    # The least limit of CPU time of the task's control groups and those above, in percent of a CPU:
    # version 2 has no controllers' names, and version 1 a hierarchy for each.
    least='' seen=''
    while IFS=: read -r _ controllers group; do
        case ,$controllers, in
            ,,) top=/sys/fs/cgroup ;;
            *,cpu,*) top=/sys/fs/cgroup/cpu ;;
            *) continue ;;
        esac
        group=${group%/}/
        while [ "$group" ]; do
            group=${group%/*} limit='' period=''
            if [ -r "$top$group/cpu.max" ]; then
                read -r limit period <"$top$group/cpu.max"
            elif [ -r "$top$group/cpu.cfs_quota_us" ]; then
                read -r limit <"$top$group/cpu.cfs_quota_us"
                read -r period <"$top$group/cpu.cfs_period_us"
            fi
            [ -z "$limit" ] || seen=1
            case $limit in
                '' | max | -*) ;;
                *)
                    limit=$((limit * 100 / period))
                    [ "${least:-$limit}" -lt "$limit" ] || least=$limit
                    ;;
            esac
        done
    done </proc/self/cgroup
    [ -z "$seen" ] ||
        printf 'plumbline-host %s cpu.quota %s\n' "$host" "${least:-none}${least:+ %}" >&2
    # Usually one; each CPU may have its own.
    governors=''
    for name in $(grep -hs . /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor | sort -u); do
        governors=$governors,$name
    done
    [ -z "$governors" ] || printf 'plumbline-host %s governor %s\n' "$host" "${governors#,}" >&2
    fact firmware /sys/class/dmi/id/bios_version
    fact board /sys/class/dmi/id/product_name
    fact nvidia_driver /sys/module/nvidia/version
    fact amdgpu_driver /sys/module/amdgpu/version
    fact transparent_hugepages /sys/kernel/mm/transparent_hugepage/enabled
    fact numa_balancing /proc/sys/kernel/numa_balancing
    fact smt /sys/devices/system/cpu/smt/control
    # Of the first CPU: x86 prints a name, POWER one with a revision, and 64-bit Arm numbers.
    cpu=''
    while IFS=: read -r key value; do
        case $key in
            '') break ;;
            'model name'* | 'cpu	'* | 'revision	'*) cpu=$cpu$value ;;
            'CPU architecture'*) ;;
            'CPU '*) key=${key#CPU } && cpu="$cpu ${key%%[!a-z]*}$value" ;;
            microcode*) printf 'plumbline-host %s microcode%s\n' "$host" "$value" >&2 ;;
        esac
    done </proc/cpuinfo
    [ -z "$cpu" ] || printf 'plumbline-host %s cpu_model%s\n' "$host" "$cpu" >&2
    if read -r key value </proc/meminfo; then
        printf 'plumbline-host %s memory %s\n' "$host" "$value" >&2
    fi
    # Only root can read it, and not on every machine.
    if [ "$rank" = 0 ] && [ -r /sys/firmware/dmi/tables/DMI ] && command -v dmidecode >/dev/null; then
        dmidecode -t memory 2>/dev/null | while IFS=: read -r key value; do
            case $key in
                *'Configured Memory Speed') printf 'plumbline-host %s memory_speed%s\n' "$host" "$value" >&2; break ;;
            esac
        done
    fi
fi
[ -z "$output" ] || exec >"$output.$rank.out"
# What is read around the program: the first task of a node reads it. NVIDIA's GPUs that device cgroups
# hide from it are read by their own tasks; AMD's are never hidden from amd-smi and rocm-smi.
throttle=1 first=${cpus%%[,-]*}
cpufreq=/sys/devices/system/cpu/cpu$first/cpufreq/scaling_cur_freq
[ -d /sys/devices/system/cpu/cpu0/thermal_throttle ] || [ -r "$cpufreq" ] || throttle=''
[ "$sample" != - ] || network='' throttle='' devices=''
[ "${place:-0}" = 0 ] || {
    network='' throttle=''
    case $devices:$hidden in
        cuda:*:1) ;;
        *) devices='' ;;
    esac
}
[ "$network$throttle$devices" ] || exec "$@"
throttled() { # MOMENT
    # The kernel counts for Intel's CPUs alone, and not for all of them by package. Each CPU counts the
    # events of its core and of its package, so those of the first one are taken.
    cores=' ' packages=' ' core='' package='' now=-
    for line in $(grep -Hs . /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list \
        /sys/devices/system/cpu/cpu[0-9]*/topology/core_siblings_list \
        /sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count)
    do
        value=${line##*:} cpu=${line#*/system/cpu/cpu}
        cpu=${cpu%%/*}
        case $line in
            */thread_siblings_list:*) [ "${value%%[,-]*}" != "$cpu" ] || cores="$cores$cpu " ;;
            */core_siblings_list:*) [ "${value%%[,-]*}" != "$cpu" ] || packages="$packages$cpu " ;;
            */core_*) case $cores in *" $cpu "*) core=$((${core:-0} + value)) ;; esac ;;
            */package_*) case $packages in *" $cpu "*) package=$((${package:-0} + value)) ;; esac ;;
        esac
    done
    [ ! -r "$cpufreq" ] || read -r now <"$cpufreq"
    printf 'plumbline-cpu %s %s %s %s %s\n' "$host" "$1" "${core:--}" "${package:--}" "$now" >&2
}
# Runs a tool, which may hang if a GPU has failed.
tool() { # COMMAND [ARGUMENT ...]
    timeout 20 "$@" 2>/dev/null
}
# Passes on what a tool printed, which is in $text, and that it failed if it did: a GPU that is not
# read would look like one that nothing slowed.
printed() { # MOMENT TOOL STATUS FILTER
    [ "$3" = 0 ] || printf 'plumbline-gpu %s %s failed %s %s\n' "$host" "$1" "$2" "$3" >&2
    "$4" <<TEXT |
$text
TEXT
        while IFS= read -r line; do
            printf 'plumbline-gpu %s %s %s %s\n' "$host" "$1" "$2" "$line" >&2
        done
}
# JSON as lines that a launcher passes on whole.
folded() {
    tr -d ' \n' | fold -b -w 2000
    echo
}
# Whether rocm-smi is asked where amd-smi does not print enough: not again if it cannot answer.
metrics=1 fields=''
devices_at() { # MOMENT
    case $devices in
        cuda:*)
            command -v nvidia-smi >/dev/null || return 0
            # It refuses a query with a name that it does not list, as of a newer driver.
            if [ -z "$fields" ]; then
                text='' known=$(tool nvidia-smi --help-query-gpu) ||
                    { printed "$1" nvidia-smi $? cat && return 0; }
                fields=pci.bus_id reasons=clocks_event_reasons
                for field in vbios_version pstate temperature.gpu temperature.memory power.limit \
                    power.default_limit clocks.current.sm clocks.max.sm clocks.current.memory \
                    clocks.max.memory clocks.applications.graphics clocks.applications.memory \
                    pcie.link.gen.current pcie.link.gen.max pcie.link.width.current \
                    pcie.link.width.max c2c.mode compute_mode persistence_mode ecc.mode.current \
                    ecc.errors.corrected.volatile.total ecc.errors.uncorrected.volatile.total \
                    retired_pages.pending remapped_rows.pending remapped_rows.failure \
                    gpu_recovery_action clocks_throttle_reasons.active $reasons.active \
                    ${reasons}_counters.sw_thermal_slowdown ${reasons}_counters.hw_thermal_slowdown \
                    ${reasons}_counters.hw_power_brake_slowdown
                do
                    case $known in *"\"$field\""*) fields=$fields,$field ;; esac
                done
            fi
            text=$(tool nvidia-smi --format=csv "--query-gpu=$fields")
            printed "$1" nvidia-smi $? cat
            ;;
        rocm:*)
            if command -v amd-smi >/dev/null; then
                if [ "$1" = before ]; then
                    text=$(tool amd-smi static --bus --limit --json)
                    answered=$?
                    # In a virtual machine it refuses --limit, also with exit code 0 (amdsmi_cli.py).
                    case $text in
                        *'"bdf"'*) ;;
                        *) text=$(tool amd-smi static --bus --json); answered=$? ;;
                    esac
                    printed "$1" amd-smi-static $answered folded
                fi
                text=$(tool amd-smi metric --json)
                answered=$?
                printed "$1" amd-smi $answered folded
                # Of GPUs before MI300 it prints no reasons, which rocm-smi does since ROCm 6.3.
                known='(accumulated|status)": *([^" n]|"[^N]|"NO)'
                if [ "$metrics:$answered" = 1:0 ] && ! printf '%s\n' "$text" |
                    grep -Eq "\"(socket|vr|hbm)_thermal_(violation_)?$known"
                then
                    if text=$(tool rocm-smi --showmetrics --showbus --json); then
                        printed "$1" rocm-smi 0 folded
                    else
                        metrics=''
                    fi
                fi
            elif command -v rocm-smi >/dev/null; then
                words='--showbus --showtemp --showclocks --showmaxpower --showvbios --json'
                # shellcheck disable=SC2086
                text=$(tool rocm-smi --showmetrics $words) || text=$(tool rocm-smi $words)
                printed "$1" rocm-smi $? folded
            fi
            # What the kernel shows, of which no tool prints all.
            text=$(for folder in /sys/bus/pci/drivers/amdgpu/*:*; do
                cd -P "$folder" 2>/dev/null || continue
                printf '%s,' "${folder##*/}"
                case $fabric in *" ${folder##*/} "*) printf 'host_link:xgmi,' ;; esac
                {
                    tool grep -H . power_dpm_force_performance_level hwmon/*/power1_cap_default \
                        ras/umc_err_count
                    tool grep -Hc ': [PF]' ras/gpu_vram_bad_pages
                    # Bridges of the card are AMD's, too: its link is that of the outermost one.
                    while read -r vendor <../vendor && [ "$vendor" = 0x1002 ]; do
                        cd -P ..
                    done 2>/dev/null
                    tool grep -H . current_link_speed current_link_width max_link_speed max_link_width \
                        ../max_link_speed ../max_link_width
                } | tr '\n' ,
                echo
            done)
            [ -z "$text" ] || printed "$1" sysfs 0 cat
            ;;
    esac
}
# Readings under load: 1, 2, 4 ... seconds after the start.
while_running() {
    seconds=0 next=1
    # Nothing may keep the launcher's pipes open, or run on, after this shell.
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        seconds=$((seconds + 1))
        [ "$seconds" -lt "$next" ] || { devices_at "load-$seconds" && next=$((next * 2)); }
    done
}
moved() { # MOMENT
    read -r now _ </proc/uptime
    line="plumbline-net $host $1 $now"
    # Of the task's own network namespace; /sys may be another one's.
    while IFS=': ' read -r name rx _ rx_errors rx_drops _ _ _ _ tx _ tx_errors tx_drops _; do
        case $name:$rx in
            lo:* | *: | *:*[!0-9]*) continue ;;
        esac
        printf '%s %s %s %s %s %s\n' "$line" "$name" "$rx" "$tx" $((rx_errors + tx_errors)) \
            $((rx_drops + tx_drops)) >&2
    done </proc/net/dev
    for folder in /sys/class/infiniband/*/ports/*/counters; do
        read -r rx <"$folder/port_rcv_data" && read -r tx <"$folder/port_xmit_data" &&
            read -r errors <"$folder/port_rcv_errors" && read -r drops <"$folder/port_xmit_discards" ||
            continue
        device=${folder#/sys/class/infiniband/} port=${folder%/counters}
        # In units of 4 bytes: the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
        printf '%s %s %s %s %s %s\n' "$line" "${device%%/*}:${port##*/}" $((rx * 4)) $((tx * 4)) \
            "$errors" "$drops" >&3
    done 3>&2 2>/dev/null
}
[ -z "$throttle" ] || throttled before
[ -z "$devices" ] || [ "$sample" != 0 ] || devices_at before
if [ "$network" ]; then
    moved quiet
    sleep "$network"
    moved start
fi
watch=''
if [ "$devices" ] && [ "$sample" -lt "${devices#*:}" ]; then
    while_running </dev/null >/dev/null &
    watch=$!
fi
# Not exec: this shell reports once more.
"$@"
status=$?
[ -z "$network" ] || moved end
[ -z "$throttle" ] || throttled after
[ -z "$watch" ] || { kill "$watch" && wait "$watch"; } 2>/dev/null
[ -z "$devices" ] || devices_at after
exit $status
