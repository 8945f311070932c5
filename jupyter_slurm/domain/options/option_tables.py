"""The long and short options of the Slurm commands, from their getopt tables.

Fields of an option: names (the first is canonical, others are synonyms; ``-`` is none), short letter (``-`` is none),
value (``=`` required, ``?`` optional, ``.`` none), and versions: ``>24.05`` since that version, ``<25.11`` until before
it. Hidden options that the binaries accept are included.

Source: the tables that sbatch and the other commands of 22.05.8, 24.11.5 and 26.05.5 pass to ``getopt_long(3)`` at run
time; the release notes for the versions between.
"""

from __future__ import annotations

from typing import Final

__all__ = ["OPTIONS", "PERMUTING"]

OPTIONS: Final[dict[str, str]] = {
    "sbatch": """
        account A =; acctg-freq - =; array a =; autocomplete - = >23.02; batch - =; bb - =; bbf - =; begin b =; chdir D
        =; cluster - =; cluster-constraint - =; clusters M =; comment - =; consolidate-segments - . >25.11; constraint C
        =; container - =; container-id - = >23.02; container-type - = >26.05; context - =; contiguous - .; core-spec S
        =; cores-per-socket - =; cpu-freq - =; cpus-per-gpu - =; cpus-per-task c =; deadline - =; delay-boot - =;
        dependency d =; distribution m =; error e =; exclude x =; exclusive - ?; export - =; export-file - =; external -
        . >25.05; extra - = >23.02; extra-node-info B =; get-user-env - . >25.05; get-user-env - ? <25.05; gid - =;
        gpu-bind - =; gpu-freq - =; gpus G =; gpus-per-node - =; gpus-per-socket - =; gpus-per-task - =; gres - =;
        gres-flags - =; help h .; hint - =; hold H .; ignore-pbs - .; input i =; job-name J =; kill-on-invalid-dep - =;
        licenses L =; mail-type - =; mail-user - =; mcs-label - =; mem - =; mem-bind - =; mem-per-cpu - =; mem-per-gpu -
        =; mem-update - = >26.05; mincpus - =; network - =; nice - ?; no-kill k ?; no-requeue - .; nodefile F =;
        nodelist w =; nodes N =; ntasks n =; ntasks-per-core - =; ntasks-per-gpu - =; ntasks-per-node,tasks-per-node -
        =; ntasks-per-socket - =; ntasks-per-tres - =; oom-kill-step - ? >24.11; open-mode - =; output o =; overcommit O
        .; oversubscribe s .; parsable - .; partition p =; power - = <24.05; prefer - =; priority - =; profile - =;
        propagate - ?; qos q =; quiet Q .; reboot - .; requeue - . <25.11; requeue - ? >25.11; reservation - =;
        resources - = >25.11; resv-ports - ? >24.05; segment - = >24.05; signal - =; sockets-per-node - =; spread-job -
        .; spread-segments - . >25.11; stepmgr - . >24.05; switches - =; test-only - .; thread-spec - =;
        threads-per-core - =; time t =; time-min - =; tmp - =; tres-bind - = >23.11; tres-per-task - = >23.02; uid - =;
        usage - .; use-min-nodes - .; verbose v .; version V .; wait W .; wait-all-nodes - =; wckey - =; wrap - =
    """,
    "salloc": """
        account A =; acctg-freq - =; autocomplete - = >23.02; bb - =; bbf - =; begin b =; bell - .; chdir D =; cluster -
        =; cluster-constraint - =; clusters M =; comment - =; consolidate-segments - . >25.11; constraint C =; container
        - =; container-id - = >23.02; container-type - = >26.05; context - =; contiguous - .; core-spec S =;
        cores-per-socket - =; cpu-freq - =; cpus-per-gpu - =; cpus-per-task c =; deadline - =; delay-boot - =;
        dependency d =; distribution m =; exclude x =; exclusive - ?; extra - = >23.02; extra-node-info B =;
        get-user-env - ? <24.11; gid - = <23.02; gpu-bind - =; gpu-freq - =; gpus G =; gpus-per-node - =;
        gpus-per-socket - =; gpus-per-task - =; gres - =; gres-flags - =; help h .; hint - =; hold H .; immediate I ?;
        job-name J =; kill-command K ?; licenses L =; mail-type - =; mail-user - =; mcs-label - =; mem - =; mem-bind -
        =; mem-per-cpu - =; mem-per-gpu - =; mem-update - = >26.05; mincpus - =; network - =; nice - ?; no-bell - .;
        no-kill k ?; no-shell - .; nodefile F =; nodelist w =; nodes N =; ntasks n =; ntasks-per-core - =;
        ntasks-per-gpu - =; ntasks-per-node,tasks-per-node - =; ntasks-per-socket - =; ntasks-per-tres - =;
        oom-kill-step - ? >24.11; overcommit O .; oversubscribe s .; partition p =; power - = <24.05; prefer - =;
        priority - =; profile - =; qos q =; quiet Q .; reboot - .; reservation - =; resources - = >25.11; resv-ports - ?
        >24.05; segment - = >24.05; signal - =; sockets-per-node - =; spread-job - .; spread-segments - . >25.11;
        stepmgr - . >24.05; switches - =; thread-spec - =; threads-per-core - =; time t =; time-min - =; tmp - =;
        tres-bind - = >23.11; tres-per-task - = >23.02; uid - = <23.02; usage - .; use-min-nodes - .; verbose v .;
        version V .; wait-all-nodes - =; wckey - =; x11 - ?
    """,
    "srun": """
        accel-bind - =; account A =; acctg-freq - =; async - . >26.05; autocomplete - = >23.02; bb - =; bbf - =; bcast -
        ?; bcast-exclude - =; begin b =; chdir D =; cluster - =; cluster-constraint - =; clusters M =; comment - =;
        compress - ?; consolidate-segments - . >25.11; constraint C =; container - =; container-id - = >23.02;
        container-type - = >26.05; context - =; contiguous - .; core-spec S =; cores-per-socket - =; cpu-bind,cpu_bind -
        =; cpu-freq - =; cpus-per-gpu - =; cpus-per-task c =; deadline - =; debugger-test - .; delay-boot - =;
        dependency d =; disable-status X .; distribution m =; epilog - =; error e =; exact - .; exclude x =; exclusive -
        ?; export - =; external-launcher - ? >23.11; extra - = >23.02; extra-node-info B =; gid - = <23.02; gpu-bind -
        =; gpu-freq - =; gpus G =; gpus-per-node - =; gpus-per-socket - =; gpus-per-task - =; gres - =; gres-flags - =;
        help h .; het-group,pack-group - =; hint - =; hold H .; ignore-signals - = >26.05; immediate I ?; input i =;
        interactive - .; job-name J =; jobid - =; kill-on-bad-exit K ?; label l .; licenses L =; mail-type - =;
        mail-user - =; mcs-label - =; mem - =; mem-bind - =; mem-per-cpu - =; mem-per-gpu - =; mem-update - = >26.05;
        mincpus - =; mpi - =; msg-timeout - =; multi-prog - .; network - =; nice - ?; no-allocate Z .; no-kill k ?;
        nodefile F =; nodelist w =; nodes N =; ntasks n =; ntasks-per-core - =; ntasks-per-gpu - =;
        ntasks-per-node,tasks-per-node - =; ntasks-per-socket - =; ntasks-per-tres - =; oom-kill-step - ? >24.11;
        open-mode - =; output o =; overcommit O .; overlap - ?; oversubscribe s .; parsable - . >26.05; partition p =;
        power - = <24.05; prefer - =; preserve-env E .; priority - =; profile - =; prolog - =; propagate - ?; pty - .
        <23.02; pty - ? >23.02; qos q =; quiet Q .; quit-on-interrupt - .; reboot - .; relative r =; reservation - =;
        resources - = >25.11; resv-ports - ?; segment - = >24.05; send-libs - ?; signal - =; slurmd-debug - =;
        sockets-per-node - =; spread-job - .; spread-segments - . >25.11; stepmgr - . >24.05; switches - =; task-epilog
        - =; task-prolog - =; test-only - .; thread-spec - =; threads T =; threads-per-core - =; time t =; time-min - =;
        tmp - =; treewidth - = >23.11; tres-bind - = >23.11; tres-per-task - = >23.02; uid - = <23.02; unbuffered u .;
        usage - .; use-min-nodes - .; verbose v .; version V .; wait W =; wait-for-children - . >25.05; wckey - =; whole
        - .; x11 - ?
    """,
    "squeue": """
        - U =; Format O =; accounts A =; all a .; array r .; array-unique - . <24.11; autocomplete - = >23.02;
        cluster,clusters M =; expand-patterns - . >23.02; federation - .; format o =; help - .; helpFormat - . >23.02;
        helpformat - . >23.02; helpstate - . >23.02; hide - .; iterate i =; jobs j ?; json - . <24.11; json - ? >23.02;
        licenses L =; local - .; long l .; me - .; name n =; noconvert - .; node,nodes,nodelist w =; noheader h .; notme
        - . >23.02; only-job-state - . >23.02; partitions p =; priority P .; qos q =; reservation R =; running-over - =
        >25.05; running-under - = >25.05; sib,sibling - .; sort S =; start - .; states t =; steps s ?; usage - .;
        user,users u =; verbose v .; version V .; yaml - . <24.11; yaml - ? >23.02
    """,
    "sinfo": """
        Format O =; Node N .; all a .; autocomplete - = >23.02; cluster,clusters M =; dead d .; exact e .; federation -
        .; format o =; future F . >23.02; help - .; helpFormat - . >23.02; helpformat - . >23.02; helpstate - . >23.02;
        hide - .; iterate i =; json - . <24.11; json - ? >23.02; list-reasons R .; local - .; long l .; noconvert - .;
        nodes n =; noheader h .; partition p =; reservation T .; responding r .; sort S =; states t =; summarize s .;
        usage - .; verbose v .; version V .; yaml - . <24.11; yaml - ? >23.02
    """,
    "scancel": """
        account A =; admin-comment - = >25.05; autocomplete - = >23.02; batch b .; cluster,clusters M =; cron c .
        >23.02; ctld - .; full f .; help - .; hurry H .; interactive i .; jobname,name n =; me - .; nodelist w =;
        partition p =; qos q =; quiet Q .; reservation R =; sibling - =; signal s =; state t =; usage - .; user u =;
        verbose v .; version V .; wckey - =
    """,
    "sacct": """
        - t .; accounts A =; allclusters L .; allocations X .; allusers a .; array - . >23.02; associations x =;
        autocomplete - = >23.02; batch-script B .; brief b .; cluster,clusters M =; completion c .; constraints C =;
        delimiter - =; duplicates D .; endtime E =; env-vars - .; expand-patterns - . >23.02; federation - .;
        fields,format o =; file f =; flags F =; gid,group g =; help h .; helpformat,help-fields e .; helpreason - .
        >23.02; helpstate - . >23.02; jobs j =; json - . <24.11; json - ? >23.02; local - .; long l .; name - =; ncpus I
        =; nnodes i =; noconvert - .; nodelist N =; noheader n .; parsable p .; parsable2 P .; partition r =; qos q =;
        reason - = <26.05; reason R = >25.05; starttime S =; state s =; timelimit-max K =; timelimit-min k =; truncate T
        .; uid,user u =; units - =; usage U .; use-local-uid - .; verbose v .; version V .; wckeys W =; whole-hetjob -
        ?; yaml - . <24.11; yaml - ? >23.02
    """,
    "scontrol": """
        all a .; autocomplete - = >23.02; cluster,clusters M =; details d .; federation - .; future F .; help,usage h .;
        hide - .; json - ? >23.02; local - .; oneliner o .; quiet Q .; sibling - .; uid u =; verbose v .; version V .;
        yaml - ? >23.02
    """,
    "sprio": """
        autocomplete - = >23.02; cluster,clusters M =; federation - .; format o =; help - .; helpformat - . >23.02; jobs
        j ?; local - .; long l .; noheader h .; norm n .; partition p =; sib,sibling - .; sort S =; usage - .;
        user,users u =; verbose v .; version V .; weights w .
    """,
    "sshare": """
        - h .; - q . <26.05; - t = <26.05; Users U .; accounts A =; all a .; autocomplete - = >23.02; cluster,clusters M
        =; format o =; help - .; helpformat e .; json - ? >23.02; long l .; noheader n .; parsable p .; parsable2 P .;
        partition m .; usage - .; users u =; verbose v .; version V .; yaml - ? >23.02
    """,
    "sdiag": """
        all a .; autocomplete - = >23.02; cluster,clusters M =; help h .; json - ? >23.02; no-trunc - . >25.05; reset r
        .; sort-by-id i .; sort-by-time t .; sort-by-time2 T .; usage - .; version V .; yaml - ? >23.02
    """,
    "sacctmgr": """
        associations s .; autocomplete - = >23.02; help,usage h .; immediate i .; json - ? >23.02; noheader n .;
        oneliner o .; parsable p .; parsable2 P .; quiet Q .; readonly r .; verbose v .; version V .; yaml - ? >23.02
    """,
    "sreport": """
        - t =; all_clusters a .; autocomplete - = >23.02; cluster M =; federation - .; help,usage h .; immediate
        - .; local - .; noheader n .; parsable p .; parsable2 P .; quiet Q .; sort - .; - s =; tres T =; verbose
        v .; version V .
    """,
    "sstat": """
        allsteps a .; autocomplete - = >23.02; fields,format o =; help h .; helpformat e .; jobs j =; noconvert - .;
        noheader n .; parsable p .; parsable2 P .; pidformat i .; usage - .; verbose v .; version V .
    """,
    "sattach": """
        autocomplete - = >23.02; debugger-test - .; error-filter - =; help h .; input-filter - =; label l .; layout - .;
        output-filter - =; pty - .; quiet Q .; usage u .; verbose v .; version V .
    """,
    "sbcast": """
        autocomplete - = >23.02; compress C ?; exclude - =; fanout F =; force f .; help - .; jobid j =;
        no-allocation - ? >23.02; - Z . >23.02; nodelist - ? >23.02; - w = >23.02; preserve p .; send-libs - ?;
        size s =; timeout t =; treewidth - = >23.02; usage - .; verbose v .; version V .
    """,
    "strigger": """
        autocomplete - = >23.02; backup_slurmctld_assumed_control C .; backup_slurmctld_failure B .;
        backup_slurmctld_resumed_operation c .; burst_buffer - .; clear - .; cluster,clusters M =; down d .; drained D
        .; draining - . >23.02; fail F .; fini f .; flags - =; front_end - . <26.05; get - .; help - .; id i =; idle I
        .; jobid j =; node n ?; noheader N .; offset o =; primary_database_failure h .;
        primary_database_resumed_operation H .; primary_slurmctld_acct_buffer_full e .; primary_slurmctld_failure a .;
        primary_slurmctld_resumed_control b .; primary_slurmctld_resumed_operation A .; primary_slurmdbd_failure g .;
        primary_slurmdbd_resumed_operation G .; program p =; quiet Q .; reconfig r .; resume R . >23.02; set - .; time t
        .; up u .; usage - .; user - =; verbose v .; version V .
    """,
    "scrontab": """
        - e .; - l .; - r .; - u =; - v .; autocomplete - =
    """,
}

#: Commands that accept options among and after their other words too (getopt without "+").
PERMUTING: Final[frozenset[str]] = frozenset(
    {
        "squeue",
        "sinfo",
        "scancel",
        "sacct",
        "scontrol",
        "sprio",
        "sshare",
        "sdiag",
        "sacctmgr",
        "sreport",
        "sstat",
        "sbcast",
        "strigger",
        "scrontab",
    }
)
