#!/usr/bin/env bash
# A SLURM of two nodes on this machine, for tests: `local_cluster.sh start FOLDER` and `local_cluster.sh stop FOLDER`.
# Needs root. Installs Debian's packages where they are missing; everything it writes and every pid lies in FOLDER.
set -euo pipefail
folder=$(realpath -m "${2:?usage: local_cluster.sh start|stop FOLDER}")

start() {
    if ! command -v slurmctld slurmd munged sbatch >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurmctld slurmd munge slurm-client \
            >/dev/null
    fi
    mkdir -p "$folder"/{state,spool/n1,spool/n2}
    chmod 755 "$folder"
    local host; host=$(hostname)
    cat >"$folder/slurm.conf" <<CONF
ClusterName=rectifiers
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthInfo=socket=$folder/munge.sock
SlurmctldPort=17817
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SchedulerParameters=bf_interval=1,sched_interval=2
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=local Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
CONF
    head -c 1024 /dev/urandom >"$folder/munge.key"
    chmod 400 "$folder/munge.key"
    export SLURM_CONF=$folder/slurm.conf
    run munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.sock" \
        --pid-file="$folder/munged.own" --log-file="$folder/munge.log" --seed-file="$folder/munge.seed"
    for _ in $(seq 50); do [ -S "$folder/munge.sock" ] && break; sleep 0.1; done
    run slurmctld -D -f "$SLURM_CONF"
    run slurmd -D -N n1 -f "$SLURM_CONF"
    run slurmd -D -N n2 -f "$SLURM_CONF"
    for _ in $(seq 100); do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null || true)" = 2 ] && { echo "$SLURM_CONF"; return; }
        sleep 0.3
    done
    echo "the nodes did not become idle; see $folder/*.log" >&2
    stop
    exit 1
}

# Start a program in the background and keep its pid, the newest first.
run() {
    "$@" >"$folder/$1-$RANDOM.out" 2>&1 &
    local pid=$!
    { echo "$pid"; cat "$folder/pids" 2>/dev/null || true; } >"$folder/pids.new"
    mv "$folder/pids.new" "$folder/pids"
}

stop() {
    export SLURM_CONF=$folder/slurm.conf
    scancel --partition=local 2>/dev/null || true # or their processes would outlive the nodes
    for _ in $(seq 100); do [ -z "$(squeue -h -t R,CG 2>/dev/null || true)" ] && break; sleep 0.1; done
    while read -r pid; do
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$pid" 2>/dev/null || true
    done <"$folder/pids"
    rm -f "$folder/pids"
}

"${1:?usage: local_cluster.sh start|stop FOLDER}"
