"""Reason codes: the stable id of each refusal, skip, invalid result, error and warning.

Messages may change; a code stays what it is. Records, JUnit XML and ``--format json`` have it, and
``plumbline explain CODE`` and ``docs/codes.md`` print what is here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """What a code stands for.

    :ivar cause: what was found.
    :ivar remedy: what to do about it.
    """

    cause: str
    remedy: str


_SYSTEM = "Correct the partition's entry in the system file (docs/systems.md)."
_OUTPUT = "Look at the output in the case's folder, and run the case again."

REASONS: dict[str, Reason] = {
    # -- input: what a command was given -----------------------------------------------------------
    "input.unknown-name": Reason(
        "There is nothing of this name: a check, benchmark, partition, reference or the like.",
        "Use one of the names that the message lists.",
    ),
    "input.wrong-option": Reason(
        "An option or argument has a value that it cannot have, or excludes another one.",
        "Correct the command line; --help of the command lists what it takes.",
    ),
    "input.unreadable-file": Reason(
        "A file is not there, cannot be read, or is no text.",
        "Check the path, its permissions and what it is.",
    ),
    "input.wrong-file": Reason(
        "A file does not have the form that it must have.",
        "Correct the file and line that the message names.",
    ),
    # -- files: where something is written ---------------------------------------------------------
    "files.not-writable": Reason(
        "A file or folder cannot be made or written.",
        "Free the disk, correct the permissions, or name another place.",
    ),
    "files.no-locks": Reason(
        "A file cannot be locked, so that two processes could change the same results.",
        "Use a folder on a file system with locks (PLUMBLINE_RESULTS, PLUMBLINE_LOCKS).",
    ),
    "files.exists": Reason(
        "There is something already where a file or report would be written.",
        "Name another place, or remove what is there.",
    ),
    "files.not-a-file": Reason(
        "A lock's file is a link, has several names, or cannot be opened.",
        "Find out what it is and remove it, or set PLUMBLINE_LOCKS to another folder.",
    ),
    "files.space-in-name": Reason(
        "ReFrame starts no job in a folder with a space in its name.",
        "Set PLUMBLINE_RESULTS to a folder without one.",
    ),
    # -- system: the system file and the host ------------------------------------------------------
    "system.not-found": Reason(
        "There is no file of a system of this name.",
        "Use one of the names that the message lists; plumbline init drafts a new one.",
    ),
    "system.wrong-file": Reason(
        "A system file contradicts its schema, or itself.",
        "Correct the entry that the message names (docs/systems.md); plumbline lint checks it.",
    ),
    "system.wrong-inventory": Reason(
        "The inventory of a system cannot be read.",
        "Write it anew with plumbline lint --accept.",
    ),
    "system.uncertain": Reason(
        "It is not certain which system this host is.",
        "Name it with --system, or set RFM_SYSTEM.",
    ),
    "system.topology-undetected": Reason(
        "The topology of this machine could not be detected.",
        "Check lscpu; describe the processor in the system file.",
    ),
    # -- check and reference: what is declared -----------------------------------------------------
    "check.wrong-declaration": Reason(
        "A check declares what there is not, or lacks what it must declare.",
        "Correct the check (docs/checks.md).",
    ),
    "check.wrong-result": Reason(
        "What a check filled in fits no record: a name, value or text is of the wrong kind.",
        "Correct the check; the message names the field (docs/record.schema.json).",
    ),
    "check.not-loaded": Reason(
        "A check file could not be loaded.",
        "Correct the error in the file that the message names.",
    ),
    "reference.wrong-table": Reason(
        "A reference table, or a file beside it, has faulty or contradictory entries.",
        "Correct the rows that the message names (docs/references.md).",
    ),
    "reference.wrong-waiver": Reason(
        "A waiver is faulty.",
        "Correct the entry that the message names (docs/waivers.md).",
    ),
    "reference.unknown-metric": Reason(
        "A figure is of a metric that is not registered.",
        "Add it with its unit and class to reference/foms.yaml.",
    ),
    # -- session: what is not begun ----------------------------------------------------------------
    "session.already-running": Reason(
        "Another process measures here, or works on the same results.",
        "Wait until it has ended; the message names it.",
    ),
    "session.nothing-selected": Reason(
        "No test case fits the names, tags, system and environments of the command line.",
        "Correct the command line; plumbline doctor lists what there is.",
    ),
    "session.refused-option": Reason(
        "An option of ReFrame would make the session's results worthless.",
        "Run without it; the message says what to use instead.",
    ),
    "session.refused-by-reframe": Reason(
        "ReFrame ended with an error before it ran anything.",
        "Follow ReFrame's own message, which is quoted.",
    ),
    "session.leftover-jobs": Reason(
        "Jobs of a session that was killed still run, and would be measured too.",
        "End them, or run with --orphans=cancel.",
    ),
    "session.leftover-processes": Reason(
        "Processes of a session that was killed still run, and do not end.",
        "End them, as root if they are of another user.",
    ),
    # -- history: what was measured ----------------------------------------------------------------
    "history.not-found": Reason(
        "There is no such folder of results.",
        "Check --from and PLUMBLINE_RESULTS.",
    ),
    "history.empty": Reason(
        "There is no session in the folder of results.",
        "Run plumbline run first, or check PLUMBLINE_RESULTS.",
    ),
    "history.unknown-session": Reason(
        "There is no such session, or none of it is selected.",
        "plumbline history list lists the sessions.",
    ),
    "history.nothing-selected": Reason(
        "The options select nothing of the history.",
        "Correct them; plumbline history list shows what there is.",
    ),
    "history.not-ended": Reason(
        "The session still runs or was cut off.",
        "Wait until it has ended, or name it.",
    ),
    "history.damaged": Reason(
        "A plan, end or record of a session cannot be read.",
        "See the file; plumbline history recover brings records back from a log.",
    ),
    "history.csv-only": Reason(
        "A CSV file does not have what is asked for.",
        "Use a folder of results.",
    ),
    "history.not-indexed": Reason(
        "The index of the history could not be made or read.",
        "Check free space and memory, and remove history.duckdb.",
    ),
    "history.shared-sessions": Reason(
        "A session is on both sides of a comparison.",
        "Name two sets of sessions that have none in common.",
    ),
    "history.too-few-sessions": Reason(
        "There are too few sessions that passed for a baseline.",
        "Run more sessions.",
    ),
    "history.no-peers": Reason(
        "There is no value of single nodes, GPUs or pairs of nodes, which could be compared.",
        "Measure node by node (docs/screening.md).",
    ),
    # -- scheduler: what it answers ----------------------------------------------------------------
    "scheduler.no-answer": Reason(
        "A command of the scheduler fails or does not answer.",
        "Try the command that the message names, on this host.",
    ),
    "scheduler.no-partition": Reason(
        "The scheduler has no partition that could be used.",
        "Name a partition.",
    ),
    "scheduler.no-node": Reason(
        "The scheduler has no usable node in the partition.",
        "Check sinfo, or name the nodes.",
    ),
    "scheduler.reservation": Reason(
        "The reservation is not there, not active, or not of the kind or partition needed.",
        "Use one of those that the message lists.",
    ),
    "scheduler.unsupported": Reason(
        "The command needs a scheduler or an option that it does not support.",
        "Use Slurm, or name the nodes.",
    ),
    # -- placement: what the node or partition does not have ---------------------------------------
    "placement.unknown": Reason(
        "There is no placement of this name.",
        "Use one of docs/placements.md.",
    ),
    "placement.topology-unknown": Reason(
        "The processor topology of the partition is not known.",
        "Describe the processor in the system file, or let ReFrame detect it (docs/systems.md).",
    ),
    "placement.wrong-topology": Reason(
        "The system file contradicts itself about cores, NUMA domains or GPUs.",
        _SYSTEM,
    ),
    "placement.no-usable-cpu": Reason(
        "This process may use none of the CPUs that the topology has.",
        "Check the affinity of the shell or container (taskset -p $$), and the system file.",
    ),
    "placement.too-few-cores": Reason(
        "The node, socket or GPU has fewer usable cores than the placement needs.",
        "Run on a node with more cores, or use a placement that needs fewer.",
    ),
    "placement.too-few-sockets": Reason(
        "The placement needs two sockets, and the node has one.",
        "Run on a node with two sockets; otherwise the skip is right.",
    ),
    "placement.too-few-nodes": Reason(
        "The check needs more nodes than the partition offers, or than the job was given.",
        "Run on a partition with the feature off-node, or set the check's nodes.",
    ),
    "placement.no-gpu": Reason(
        "The placement is for nodes with GPUs, and this one has none.",
        "If it has, add them to the partition's devices in the system file.",
    ),
    "placement.no-pair-class": Reason(
        "The partition has no pair of GPUs of this class.",
        "If it has, add the class to extras.pair_classes in the system file.",
    ),
    "placement.no-numa-domain": Reason(
        "The node has no usable NUMA domain of this number.",
        "Check numactl --hardware on the node and the topology in the system file.",
    ),
    "placement.racks-unknown": Reason(
        "The case needs nodes of several racks, and which rack a node is in is not known.",
        "Set extras.rack_pattern of the partition in the system file.",
    ),
    "placement.one-rack": Reason(
        "The scheduler gave the job nodes of fewer racks than the case needs.",
        "Request nodes of several racks with ReFrame's -J, and run the case again.",
    ),
    "placement.cache-unknown": Reason(
        "The problem is sized by the last-level cache, whose size is not known.",
        "Give the caches in the processor's topology of the partition in the system file.",
    ),
    "placement.memory-unknown": Reason(
        "The problem is sized by the memory, whose size is not known.",
        "Set extras.memory of the partition in the system file.",
    ),
    "placement.too-little-memory": Reason(
        "The problem must be larger than the caches, and then it does not fit the memory.",
        "Correct the caches and the memory in the system file; otherwise the skip is right.",
    ),
    # -- binding: what a launcher cannot do --------------------------------------------------------
    "binding.launcher-unknown": Reason(
        "No binding is written for this launcher.",
        "Use a launcher of docs/launchers.md, or add its binding to plumbline/placement/binding.",
    ),
    "binding.scheduler-unknown": Reason(
        "It is not known how a job of this scheduler lists its nodes.",
        "Measure pairs of nodes under a scheduler of docs/launchers.md.",
    ),
    "binding.not-expressible": Reason(
        "The launcher has no options that place the tasks as the placement asks.",
        "Use another launcher or placement; docs/launchers.md lists what each can do.",
    ),
    "binding.gpu-vendor-unknown": Reason(
        "The vendor of the GPUs is not known, so that they cannot be selected.",
        "Set the arch of the partition's devices (sm_..., gfx...) in the system file.",
    ),
    "binding.numactl-missing": Reason(
        "The placement binds memory, and numactl is not on PATH.",
        "Install numactl.",
    ),
    "binding.memory-policy-refused": Reason(
        "The kernel refuses to bind memory to a NUMA domain, as it often does in containers.",
        "Start the container with --cap-add=SYS_NICE, or measure outside it.",
    ),
    # -- build: the program ------------------------------------------------------------------------
    "build.not-on-path": Reason(
        "The program is not on PATH in this environment.",
        "Install it, load its module in the environment, or build it with plumbline build.",
    ),
    "build.not-built": Reason(
        "The Spack environment is not built, or not as it is described now.",
        "Run plumbline build with the environment's name.",
    ),
    "build.not-in-environment": Reason(
        "The Spack environment is built without this program.",
        "Add the package to its manifest, or see why it could not be built; then plumbline build.",
    ),
    "build.changed": Reason(
        "The program's file is not the one that was built.",
        "Build again with plumbline build, and find out who changed it.",
    ),
    "build.debug": Reason(
        "The program was built without optimization, so that its timings mean nothing.",
        "Build it with CMAKE_BUILD_TYPE=Release, or with plumbline build.",
    ),
    "build.other-mpi": Reason(
        "The program was built with another MPI than the launcher's.",
        "Build again with plumbline build, or correct the environment's MPI.",
    ),
    "build.wrong-launcher": Reason(
        "No launcher on PATH belongs to the MPI that the program is linked with.",
        "Install that MPI's launcher, or put it first on PATH.",
    ),
    "build.failed": Reason(
        "A Spack environment, or a part of it, was not built.",
        "See the log that the message names, and run plumbline build again.",
    ),
    "build.no-compiler": Reason(
        "A compiler or MPI that the build needs does not work on this machine.",
        "Install what the message names.",
    ),
    "build.too-little-space": Reason(
        "The disk of the install root has too little free space for a build.",
        "Free some, or set PLUMBLINE_TOOLS to a folder on another disk.",
    ),
    "build.no-wheel": Reason(
        "The program is in no wheel, so that the environment pip cannot have it.",
        "Choose another environment with -p.",
    ),
    "build.wheel-not-installed": Reason(
        "The wheels of MPICH and the Intel MPI Benchmarks are not installed, or are damaged.",
        "Run plumbline setup.",
    ),
    "build.modules-not-loaded": Reason(
        "A module that the partition or environment names could not be loaded.",
        "Correct the modules in the system file, or ask the site for the module.",
    ),
    # -- spack: what builds ------------------------------------------------------------------------
    "spack.failed": Reason(
        "Spack ended with an error.",
        "See the log that the message names.",
    ),
    "spack.no-git": Reason(
        "git is not on PATH.",
        "Install it, or load its module.",
    ),
    "spack.no-lock": Reason(
        "The environment has no lock, or a file that is none.",
        "Make it with plumbline lock.",
    ),
    "spack.not-concretized": Reason(
        "Spack cannot satisfy the manifest of an environment.",
        "Correct the manifest or its externals, as the message says.",
    ),
    "spack.not-fetched": Reason(
        "A source, repository or wheel could not be had from the network.",
        "Check the network and its proxy, or use a mirror (docs/spack.md).",
    ),
    "spack.wrong-manifest": Reason(
        "A manifest or pins.yaml of spack-env is faulty.",
        "Correct the entry that the message names.",
    ),
    "spack.wrong-mirror": Reason(
        "The mirror is not there, is none, or lacks what is needed.",
        "Mount it, make it again with plumbline mirror create, or use another one.",
    ),
    # -- scratch: where files go -------------------------------------------------------------------
    "scratch.none": Reason(
        "The partition has no folder for files of this kind.",
        "Set extras.scratch or extras.file_systems of the partition.",
    ),
    "scratch.variable-unset": Reason(
        "The variable that holds the folder of a file system is not set.",
        "Set it to a folder of yours on that file system.",
    ),
    "scratch.not-a-folder": Reason(
        "The system file gives no absolute path of a folder for a file system.",
        "Correct path or path_variable in the partition's extras.file_systems.",
    ),
    "scratch.not-writable": Reason(
        "The folder for files cannot be made or written.",
        "Correct its permissions, or set the partition's scratch to another folder.",
    ),
    "scratch.too-little-space": Reason(
        "The file system has too few free bytes or inodes.",
        "Free some, or set the partition's scratch to another file system.",
    ),
    "scratch.no-direct-io": Reason(
        "The file system has no direct I/O, so that the page cache would be measured.",
        "Set the partition's scratch to a disk or a parallel file system.",
    ),
    "scratch.read-only-on-nodes": Reason(
        "The results would go to a file system that compute nodes can only read.",
        "Set PLUMBLINE_RESULTS to a folder that they can write.",
    ),
    # -- output: what cannot be trusted ------------------------------------------------------------
    "output.not-parsed": Reason(
        "The output is cut off, garbled, contradicts itself, or has an unknown form.",
        f"{_OUTPUT} For a new version of the program, its parser needs the new form.",
    ),
    "output.program-error": Reason(
        "The program itself reports that its run failed or that its results are wrong.",
        "Follow the program's own message, which is quoted.",
    ),
    "output.no-sample": Reason(
        "The job ended before any sample did.",
        "Look at the job's standard error, and at what the scheduler reports of the job.",
    ),
    "output.sample-unfinished": Reason(
        "A sample was started and did not end: the job was killed, or ran into its time limit.",
        "Look at the sample's standard error; raise the time limit if it is too short.",
    ),
    "output.exit-code": Reason(
        "A run of the program ended with an exit code other than 0.",
        "Look at its standard error in the case's folder.",
    ),
    "output.file-missing": Reason(
        "The job did not write a file that it should have written.",
        "Look at the job's standard error; check quota and free space.",
    ),
    "output.file-unreadable": Reason(
        "A file of the job cannot be read, is too large, or is no regular file.",
        "Check the file and the file system.",
    ),
    "output.file-garbled": Reason(
        "A file that the job script writes has other contents than the script writes.",
        "Run the case again; check whether two jobs share a folder, and the file system.",
    ),
    "output.other-job": Reason(
        "The times of the samples are not within those of the job.",
        "Run the case again; check the clocks of login and compute nodes.",
    ),
    "output.task-count": Reason(
        "The program ran with another number of tasks than the placement has.",
        "Use the launcher, and srun's --mpi, that belong to the program's MPI.",
    ),
    "output.node-count": Reason(
        "The job ran on another number of nodes than it asked for.",
        "Look at the scheduler's options of the job, and run the case again.",
    ),
    "output.other-inputs": Reason(
        "The program reports other inputs or options than it was given.",
        "Check the program's version, and environment variables that change its options.",
    ),
    "output.figure-missing": Reason(
        "A figure that the check declares was not printed by every sample.",
        "Check the program's options and version, and the figures that the check declares.",
    ),
    "output.unit": Reason(
        "A figure is in a unit that cannot be converted to the registered one.",
        "Correct the unit in reference/foms.yaml or in the parser.",
    ),
    "output.not-positive": Reason(
        "A figure is not finite and positive.",
        _OUTPUT,
    ),
    # -- proof: where the tasks really ran ---------------------------------------------------------
    "proof.unreadable": Reason(
        "What a task reports of its place cannot be read.",
        "Look at the sample's standard error for lines plumbline-task; run the case again.",
    ),
    "proof.task-count": Reason(
        "Another number of tasks started than the placement has.",
        "Use the launcher, and srun's --mpi, that belong to the program's MPI.",
    ),
    "proof.wrong-node": Reason(
        "A task ran on another node than the placement says.",
        "Check the launcher's options and its environment variables.",
    ),
    "proof.wrong-cpus": Reason(
        "A task could run on other CPUs than the placement gives it.",
        "Check the launcher's version and the environment variables that change its binding.",
    ),
    "proof.one-rack": Reason(
        "The nodes of the job were in fewer racks than the placement needs.",
        "Request nodes of several racks with ReFrame's -J, and run the case again.",
    ),
    "proof.wrong-local-rank": Reason(
        "A task has another local rank than its launcher should give it.",
        "Check the environment variables that name the local rank (docs/launchers.md).",
    ),
    "proof.wrong-gpu": Reason(
        "A task sees other GPUs than the placement gives it.",
        "Check CUDA_VISIBLE_DEVICES and the like, and the launcher's GPU options.",
    ),
    "proof.shared-gpu": Reason(
        "Two tasks use one GPU, and the placement gives each its own.",
        "Check the launcher's GPU options, and the environment variables of the local rank.",
    ),
    "topology.mismatch": Reason(
        "The node's packages, cores, NUMA domains or GPUs differ from the system file.",
        "Correct the entry in the system file, or have the node repaired.",
    ),
    # -- job: what the scheduler did ---------------------------------------------------------------
    "job.time-limit": Reason(
        "The scheduler ended the job at its time limit.",
        "Find out why it was slow; otherwise raise the check's sample_seconds.",
    ),
    "job.out-of-memory": Reason(
        "The scheduler or kernel ended the job because it ran out of memory.",
        "Request more memory, or use fewer tasks or a smaller problem.",
    ),
    "job.node-failed": Reason(
        "A node of the job failed.",
        "Have the node checked, and run the case again.",
    ),
    "job.preempted": Reason(
        "Another job preempted this one.",
        "Run the case again, in a queue or at a time without preemption.",
    ),
    "job.cancelled": Reason(
        "Somebody cancelled the job.",
        "Run the case again.",
    ),
    "job.ended-by-scheduler": Reason(
        "The scheduler ended the job for a reason that is not known here.",
        "Read the scheduler's words in the message.",
    ),
    # -- case: how it ended ------------------------------------------------------------------------
    "case.set-up": Reason(
        "The case could not be set up: its environment, modules, stage folder or job script.",
        "Read the message; plumbline doctor shows what is missing.",
    ),
    "case.would-change-host": Reason(
        "The program would change settings of this host, which this user may do.",
        "Run it as another user.",
    ),
    "case.not-submitted": Reason(
        "The scheduler did not take the job, or lost track of it.",
        "Read the scheduler's message; check the partition's access options.",
    ),
    "case.error": Reason(
        "The case ended with an error after its job.",
        "Read the message and ReFrame's log.",
    ),
    "case.sanity": Reason(
        "The sanity function of a check that is not Plumbline's refused its output.",
        "Read the message, and the check.",
    ),
    "case.skipped-by-reframe": Reason(
        "ReFrame itself skipped the case.",
        "Read ReFrame's reason.",
    ),
    "case.phase-skipped": Reason(
        "ReFrame was told to skip the sanity or performance phase, so that nothing was judged.",
        "Run without --skip-sanity-check and --skip-performance-check.",
    ),
    "case.xfail": Reason(
        "The check is marked with ReFrame's xfail, which has no owner and no end.",
        "Use a waiver (docs/waivers.md), and remove the mark.",
    ),
    "case.budget-spent": Reason(
        "The session's budget was spent before the case ended.",
        "Raise --budget, or select fewer cases.",
    ),
    "case.stopped": Reason(
        "The session was stopped, or another case's failure ended it, before the case ended.",
        "Run the case again.",
    ),
    "case.unfinished": Reason(
        "The session ended or was killed before the case did.",
        "Run the case again; look at the session's log for what ended it.",
    ),
    # -- figure: what was measured -----------------------------------------------------------------
    "figure.outside-bounds": Reason(
        "A figure is outside the bounds of its reference.",
        "plumbline refs --why ID shows where the bounds come from; plumbline trend, since when.",
    ),
    "figure.above-ceiling": Reason(
        "A figure is better than the hardware can be, so that the measurement is wrong.",
        "Check what was measured (a cache, a wrong size or unit), and the ceiling.",
    ),
    "figure.better-than-reference": Reason(
        "A figure is far better than its reference.",
        "Check what was measured: a cache in place of a disk, or two tasks on one node.",
    ),
    "figure.sample-beyond-bound": Reason(
        "A figure passes, and single samples of it are beyond the bound.",
        "Look for noise on the nodes: plumbline screen, and other jobs at that time.",
    ),
    "figure.no-congestion": Reason(
        "GPCNeT's figures under congestion are those without, or nearly so.",
        "Check that the congestors ran.",
    ),
}
