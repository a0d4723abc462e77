"""Reason codes: the stable id of each refusal, skip, invalid result, error and warning.

Messages may change; codes may not. Records, JUnit XML and ``--format json`` contain them, and
``plumbline explain CODE`` and ``docs/codes.md`` print the explanations below.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """The explanation of a code.

    :ivar cause: what happened.
    :ivar remedy: what to do about it.
    """

    cause: str
    remedy: str


_SYSTEM = "Correct the partition's entry in the system file (docs/systems.md)."
_OUTPUT = "Look at the output in the case's folder, and run the case again."

REASONS: dict[str, Reason] = {
    # -- input: what a command was given -----------------------------------------------------------
    "input.unknown-name": Reason(
        "No check, benchmark, partition, reference or other item with this name exists.",
        "Use one of the names that the message lists.",
    ),
    "input.wrong-option": Reason(
        "An option or argument has an invalid value, or cannot be combined with another one.",
        "Correct the command line; the command's --help lists its options.",
    ),
    "input.unreadable-file": Reason(
        "A file does not exist, cannot be read, or is not a text file.",
        "Check the path, its permissions and the type of the file.",
    ),
    "input.wrong-file": Reason(
        "A file does not have the expected format.",
        "Correct the file and line that the message names.",
    ),
    # -- files: where something is written ---------------------------------------------------------
    "files.not-writable": Reason(
        "A file or folder cannot be created or written.",
        "Free disk space, correct the permissions, or use another path.",
    ),
    "files.no-locks": Reason(
        "A file cannot be locked, so two processes could change the same results.",
        "Use a folder on a file system that supports locks (PLUMBLINE_RESULTS, PLUMBLINE_LOCKS).",
    ),
    "files.exists": Reason(
        "The output file or folder exists already.",
        "Use another path, or remove the existing file or folder.",
    ),
    "files.not-a-file": Reason(
        "A lock file is a link, has several hard links, or cannot be opened.",
        "Inspect and remove it, or set PLUMBLINE_LOCKS to another folder.",
    ),
    "files.space-in-name": Reason(
        "ReFrame cannot start jobs in a folder with a space in its path.",
        "Set PLUMBLINE_RESULTS to a path without spaces.",
    ),
    # -- system: the system file and the host ------------------------------------------------------
    "system.not-found": Reason(
        "No system file with this name exists.",
        "Use one of the names that the message lists; plumbline init drafts a new one.",
    ),
    "system.wrong-file": Reason(
        "A system file violates its schema, or contradicts itself.",
        "Correct the entry that the message names (docs/systems.md); plumbline lint checks it.",
    ),
    "system.wrong-inventory": Reason(
        "The inventory of a system cannot be read.",
        "Write it again with plumbline lint --accept.",
    ),
    "system.uncertain": Reason(
        "It is not certain which system this host is.",
        "Choose the system with --system, or set RFM_SYSTEM.",
    ),
    "system.topology-undetected": Reason(
        "The topology of this machine could not be detected.",
        "Check lscpu; describe the processor in the system file.",
    ),
    # -- check and reference: what is declared -----------------------------------------------------
    "check.wrong-declaration": Reason(
        "A check declares something that does not exist, or lacks a declaration.",
        "Correct the check (docs/checks.md).",
    ),
    "check.wrong-result": Reason(
        "A check produced a result that cannot be recorded: a field has the wrong type or value.",
        "Correct the check; the message gives the field (docs/record.schema.json).",
    ),
    "check.not-loaded": Reason(
        "A check file could not be loaded.",
        "Correct the error in the file that the message names.",
    ),
    "reference.wrong-table": Reason(
        "A reference table, or a file in the same folder, has invalid or contradictory entries.",
        "Correct the rows that the message names (docs/references.md).",
    ),
    "reference.wrong-waiver": Reason(
        "A waiver is invalid.",
        "Correct the entry that the message names (docs/waivers.md).",
    ),
    "reference.unknown-metric": Reason(
        "The metric of a figure is not registered.",
        "Add it with its unit and class to reference/foms.yaml.",
    ),
    # -- session: what is not started --------------------------------------------------------------
    "session.already-running": Reason(
        "Another process measures on this host, or writes to the same results.",
        "Wait until it has ended; the message identifies it.",
    ),
    "session.nothing-selected": Reason(
        "No test case matches the names, tags, system and environments of the command line.",
        "Correct the command line; plumbline doctor lists the test cases.",
    ),
    "session.refused-option": Reason(
        "An option of ReFrame would make the session's results invalid.",
        "Run without it; the message gives an alternative.",
    ),
    "session.refused-by-reframe": Reason(
        "ReFrame ended with an error before it ran anything.",
        "Follow ReFrame's own message, which is quoted.",
    ),
    "session.leftover-jobs": Reason(
        "Jobs of a killed session still run and would disturb the measurements.",
        "End them, or run with --orphans=cancel.",
    ),
    "session.leftover-processes": Reason(
        "Processes of a killed session still run and could not be ended.",
        "End them, as root if they belong to another user.",
    ),
    # -- history: what was measured ----------------------------------------------------------------
    "history.not-found": Reason(
        "The results folder does not exist.",
        "Check --from and PLUMBLINE_RESULTS.",
    ),
    "history.empty": Reason(
        "The results folder contains no session.",
        "Run plumbline run first, or check PLUMBLINE_RESULTS.",
    ),
    "history.unknown-session": Reason(
        "No such session exists, or the options select nothing of it.",
        "Choose a session that plumbline history list shows.",
    ),
    "history.nothing-selected": Reason(
        "The options select no record of the history.",
        "Correct the options; plumbline history list shows the sessions.",
    ),
    "history.not-ended": Reason(
        "The session still runs, or was interrupted.",
        "Wait until it has ended, or give its name.",
    ),
    "history.damaged": Reason(
        "A plan, end or record of a session cannot be read.",
        "Inspect the file; plumbline history recover restores records from a log.",
    ),
    "history.csv-only": Reason(
        "A CSV file does not contain the requested data.",
        "Use a results folder.",
    ),
    "history.not-indexed": Reason(
        "The index of the history could not be created or read.",
        "Check free space and memory, and remove history.duckdb.",
    ),
    "history.shared-sessions": Reason(
        "A session is on both sides of a comparison.",
        "Choose two sets that have no session in common.",
    ),
    "history.too-few-sessions": Reason(
        "Too few sessions passed for a baseline.",
        "Run more sessions.",
    ),
    "history.no-peers": Reason(
        "No values of single nodes, GPUs or pairs of nodes exist that could be compared.",
        "Measure each node (docs/screening.md).",
    ),
    # -- scheduler: its answers --------------------------------------------------------------------
    "scheduler.no-answer": Reason(
        "A scheduler command fails or does not respond.",
        "Run the command in the message by hand on this host.",
    ),
    "scheduler.no-partition": Reason(
        "The scheduler has no usable partition.",
        "Give a partition.",
    ),
    "scheduler.no-node": Reason(
        "The scheduler has no usable node in the partition.",
        "Check sinfo, or give the nodes.",
    ),
    "scheduler.reservation": Reason(
        "The reservation does not exist, is not active, or has the wrong type or partition.",
        "Use a reservation that the message lists.",
    ),
    "scheduler.unsupported": Reason(
        "The command needs a scheduler or an option that it does not support.",
        "Use Slurm, or give the nodes.",
    ),
    # -- placement: what the node or partition does not have ---------------------------------------
    "placement.unknown": Reason(
        "No placement with this name exists.",
        "Use a placement of docs/placements.md.",
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
        "This process may not use any of the CPUs of the topology.",
        "Check the affinity of the shell or container (taskset -p $$), and the system file.",
    ),
    "placement.too-few-cores": Reason(
        "The node, socket or GPU has fewer usable cores than the placement needs.",
        "Run on a node with more cores, or use a placement that needs fewer.",
    ),
    "placement.too-few-sockets": Reason(
        "The placement needs two sockets, but the node has one.",
        "Run on a node with two sockets; otherwise the skip is correct.",
    ),
    "placement.too-few-nodes": Reason(
        "The check needs more nodes than the partition or the job has.",
        "Run on a partition with the feature off-node, or set the check's nodes.",
    ),
    "placement.no-gpu": Reason(
        "The placement needs GPUs, but the node has none.",
        "If the node has GPUs, add them to the partition's devices in the system file.",
    ),
    "placement.no-pair-class": Reason(
        "The partition has no pair of GPUs of this class.",
        "If it has such a pair, add the class to extras.pair_classes in the system file.",
    ),
    "placement.no-numa-domain": Reason(
        "The node has no usable NUMA domain of this number.",
        "Check numactl --hardware on the node and the topology in the system file.",
    ),
    "placement.racks-unknown": Reason(
        "The case needs nodes of several racks, but the racks of the nodes are not known.",
        "Set extras.rack_pattern of the partition in the system file.",
    ),
    "placement.one-rack": Reason(
        "The scheduler gave the job nodes of fewer racks than the case needs.",
        "Request nodes of several racks with ReFrame's -J, and run the case again.",
    ),
    "placement.cache-unknown": Reason(
        "The problem size depends on the last-level cache, whose size is not known.",
        "Add the caches to the topology of the partition's processor in the system file.",
    ),
    "placement.memory-unknown": Reason(
        "The problem size depends on the memory, whose size is not known.",
        "Set extras.memory of the partition in the system file.",
    ),
    "placement.too-little-memory": Reason(
        "A problem larger than the caches does not fit in the memory.",
        "Correct the caches and the memory in the system file; otherwise the skip is correct.",
    ),
    # -- binding: what a launcher cannot do --------------------------------------------------------
    "binding.launcher-unknown": Reason(
        "Plumbline has no binding for this launcher.",
        "Use a launcher of docs/launchers.md, or add its binding to plumbline/placement/binding.",
    ),
    "binding.scheduler-unknown": Reason(
        "Plumbline does not know how a job of this scheduler lists its nodes.",
        "Measure pairs of nodes under a scheduler of docs/launchers.md.",
    ),
    "binding.not-expressible": Reason(
        "The launcher has no options for this placement.",
        "Use another launcher or placement; docs/launchers.md lists what each can do.",
    ),
    "binding.gpu-vendor-unknown": Reason(
        "The vendor of the GPUs is not known, so they cannot be selected.",
        "Set the arch of the partition's devices (sm_..., gfx...) in the system file.",
    ),
    "binding.numactl-missing": Reason(
        "The placement binds memory, but numactl is not on PATH.",
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
        "The Spack environment is not built, or its description changed after the build.",
        "Build it with plumbline build and its name.",
    ),
    "build.not-in-environment": Reason(
        "The Spack environment does not contain this program.",
        "Add the package to its manifest, or find out why its build failed; then plumbline build.",
    ),
    "build.changed": Reason(
        "The program's file changed after the build.",
        "Build again with plumbline build, and find out who changed it.",
    ),
    "build.debug": Reason(
        "The program was built without optimization, so its timings are meaningless.",
        "Build it with CMAKE_BUILD_TYPE=Release, or with plumbline build.",
    ),
    "build.other-mpi": Reason(
        "The program was built with a different MPI from the launcher's.",
        "Build again with plumbline build, or correct the environment's MPI.",
    ),
    "build.wrong-launcher": Reason(
        "No launcher on PATH belongs to the program's MPI.",
        "Install that MPI's launcher, or put it first on PATH.",
    ),
    "build.failed": Reason(
        "A Spack environment was not built, or only in part.",
        "Read the log that the message names, and run plumbline build again.",
    ),
    "build.no-compiler": Reason(
        "A compiler or MPI that the build needs does not work on this machine.",
        "Install what the message names.",
    ),
    "build.too-little-space": Reason(
        "The disk of the install root has not enough free space for a build.",
        "Free disk space, or set PLUMBLINE_TOOLS to a folder on another disk.",
    ),
    "build.no-wheel": Reason(
        "No wheel contains the program, so the environment pip cannot provide it.",
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
        "Read the log that the message names.",
    ),
    "spack.no-git": Reason(
        "git is not on PATH.",
        "Install it, or load its module.",
    ),
    "spack.no-lock": Reason(
        "The environment has no lock file, or an invalid one.",
        "Create it with plumbline lock.",
    ),
    "spack.not-concretized": Reason(
        "Spack cannot satisfy the manifest of an environment.",
        "Correct the manifest or its externals; the message gives the conflict.",
    ),
    "spack.not-fetched": Reason(
        "A source, repository or wheel could not be downloaded.",
        "Check the network and its proxy, or use a mirror (docs/spack.md).",
    ),
    "spack.wrong-manifest": Reason(
        "A manifest or pins.yaml of spack-env is invalid.",
        "Correct the entry that the message names.",
    ),
    "spack.wrong-mirror": Reason(
        "The mirror does not exist, is not a mirror, or is incomplete.",
        "Mount it, create it again with plumbline mirror create, or use another one.",
    ),
    # -- scratch: where files go -------------------------------------------------------------------
    "scratch.none": Reason(
        "The partition has no folder for files of this kind.",
        "Set extras.scratch or extras.file_systems of the partition.",
    ),
    "scratch.variable-unset": Reason(
        "The environment variable with the folder of a file system is not set.",
        "Set it to your own folder on that file system.",
    ),
    "scratch.not-a-folder": Reason(
        "The system file gives no absolute path of a folder for a file system.",
        "Correct path or path_variable in the partition's extras.file_systems.",
    ),
    "scratch.not-writable": Reason(
        "The folder for files cannot be created or written.",
        "Correct its permissions, or set the partition's scratch to another folder.",
    ),
    "scratch.too-little-space": Reason(
        "The file system has too few free bytes or inodes.",
        "Free space or inodes, or set the partition's scratch to another file system.",
    ),
    "scratch.no-direct-io": Reason(
        "The file system does not support direct I/O, so the page cache would be measured.",
        "Set the partition's scratch to a disk or a parallel file system.",
    ),
    "scratch.read-only-on-nodes": Reason(
        "The results would go to a file system that compute nodes can only read.",
        "Set PLUMBLINE_RESULTS to a folder that they can write.",
    ),
    # -- output: what cannot be trusted ------------------------------------------------------------
    "output.not-parsed": Reason(
        "The output is truncated, garbled, contradictory, or has an unknown format.",
        f"{_OUTPUT} For a new version of the program, extend its parser.",
    ),
    "output.program-error": Reason(
        "The program itself reports that its run failed or that its results are wrong.",
        "Follow the program's own message, which is quoted.",
    ),
    "output.no-sample": Reason(
        "The job ended before its first sample ended.",
        "Look at the job's standard error, and at the scheduler's report on the job.",
    ),
    "output.sample-unfinished": Reason(
        "A sample started and did not end: the job was killed, or hit its time limit.",
        "Look at the sample's standard error; raise the time limit if it is too short.",
    ),
    "output.exit-code": Reason(
        "A run of the program ended with an exit code other than 0.",
        "Look at its standard error in the case's folder.",
    ),
    "output.file-missing": Reason(
        "The job did not write an expected file.",
        "Look at the job's standard error; check quota and free space.",
    ),
    "output.file-unreadable": Reason(
        "A file of the job cannot be read, is too large, or is not a regular file.",
        "Check the file and the file system.",
    ),
    "output.file-garbled": Reason(
        "A file that the job script wrote has unexpected contents.",
        "Run the case again; check whether two jobs share a folder, and the file system.",
    ),
    "output.other-job": Reason(
        "The samples did not run between the start and the end of the job.",
        "Run the case again; check the clocks of login and compute nodes.",
    ),
    "output.task-count": Reason(
        "The program ran with a different number of tasks than the placement has.",
        "Use the launcher, and srun's --mpi, that belong to the program's MPI.",
    ),
    "output.node-count": Reason(
        "The job ran on a different number of nodes than requested.",
        "Check the job's scheduler options, and run the case again.",
    ),
    "output.other-inputs": Reason(
        "The program reports different inputs or options than it was given.",
        "Check the program's version, and environment variables that change its options.",
    ),
    "output.figure-missing": Reason(
        "Not every sample printed a figure that the check declares.",
        "Check the program's options and version, and the figures that the check declares.",
    ),
    "output.unit": Reason(
        "The unit of a figure cannot be converted to the registered unit.",
        "Correct the unit in reference/foms.yaml or in the parser.",
    ),
    "output.not-positive": Reason(
        "A figure is not finite and positive.",
        _OUTPUT,
    ),
    # -- proof: where the tasks ran ----------------------------------------------------------------
    "proof.unreadable": Reason(
        "A task's report of where it ran cannot be read.",
        "Look at the sample's standard error for lines plumbline-task; run the case again.",
    ),
    "proof.task-count": Reason(
        "A different number of tasks started than the placement has.",
        "Use the launcher, and srun's --mpi, that belong to the program's MPI.",
    ),
    "proof.wrong-node": Reason(
        "A task ran on a different node than the placement specifies.",
        "Check the launcher's options and its environment variables.",
    ),
    "proof.wrong-cpus": Reason(
        "A task could run on different CPUs than the placement assigns.",
        "Check the launcher's version and the environment variables that change its binding.",
    ),
    "proof.wrong-local-rank": Reason(
        "A task has a different local rank than its launcher should assign.",
        "Check the environment variables for the local rank (docs/launchers.md).",
    ),
    "proof.wrong-gpu": Reason(
        "A task sees different GPUs than the placement assigns.",
        "Check CUDA_VISIBLE_DEVICES and the like, and the launcher's GPU options.",
    ),
    "proof.shared-gpu": Reason(
        "Two tasks use the same GPU, but the placement assigns each its own.",
        "Check the launcher's GPU options, and the environment variables of the local rank.",
    ),
    "topology.mismatch": Reason(
        "The node's packages, cores, NUMA domains or GPUs differ from the system file.",
        "Correct the entry in the system file, or have the node repaired.",
    ),
    # -- job: what the scheduler did ---------------------------------------------------------------
    "job.time-limit": Reason(
        "The scheduler ended the job at its time limit.",
        "Find out why the case was slow, or raise the check's sample_seconds.",
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
        "The scheduler ended the job for an unknown reason.",
        "Read the scheduler's text in the message.",
    ),
    # -- case: how it ended ------------------------------------------------------------------------
    "case.set-up": Reason(
        "The case could not be set up: its environment, modules, stage folder or job script.",
        "Read the message; plumbline doctor shows what is missing.",
    ),
    "case.would-change-host": Reason(
        "The program would change settings of this host, and this user has the permission.",
        "Run it as another user.",
    ),
    "case.not-submitted": Reason(
        "The scheduler did not accept the job, or lost track of it.",
        "Read the scheduler's message; check the partition's access options.",
    ),
    "case.error": Reason(
        "The case ended with an error after its job.",
        "Read the message and ReFrame's log.",
    ),
    "case.sanity": Reason(
        "The sanity function of a check outside Plumbline rejected the output.",
        "Read the message, and the check.",
    ),
    "case.skipped-by-reframe": Reason(
        "ReFrame itself skipped the case.",
        "Read ReFrame's reason.",
    ),
    "case.phase-skipped": Reason(
        "An option skipped the sanity or performance phase, so nothing was compared.",
        "Run without --skip-sanity-check and --skip-performance-check.",
    ),
    "case.xfail": Reason(
        "The check uses ReFrame's xfail, which has no owner and no expiry date.",
        "Use a waiver (docs/waivers.md) instead of xfail.",
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
        "plumbline refs --why ID shows the source of the bounds, plumbline trend the history.",
    ),
    "figure.above-ceiling": Reason(
        "A figure is better than the hardware's theoretical peak, so the measurement is wrong.",
        "Check the ceiling, and whether a cache, a wrong size or a wrong unit was measured.",
    ),
    "figure.better-than-reference": Reason(
        "A figure is far better than its reference.",
        "Check whether a cache was measured instead of a disk, or one node instead of two.",
    ),
    "figure.sample-beyond-bound": Reason(
        "A figure passes, but single samples of it are beyond the bound.",
        "Look for noise on the nodes: plumbline screen, and other jobs at that time.",
    ),
    "figure.not-evaluated": Reason(
        "ReFrame could not evaluate a performance variable of a check, and ran on without it.",
        "Correct its pattern or function; reframe.log in the session's folder has the error.",
    ),
    "figure.no-congestion": Reason(
        "GPCNeT's figures with congestion are almost the same as without.",
        "Check that the congestors ran.",
    ),
}
