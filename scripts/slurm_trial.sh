#!/usr/bin/env bash
# Try `scripts/sweep.py --engine slurm` on a real SLURM: one node, this machine, from Debian's packages. Not
# part of CI. It changes the machine it runs on, so it asks for a flag; a container that is thrown away is
# the right place. All else is in a folder of its own, and the daemons are ended at the end. A few minutes.
#   bash scripts/slurm_trial.sh --yes-install
set -euo pipefail
if [ "$*" != --yes-install ]; then
    echo "slurm_trial.sh: nothing was done: it installs slurm-wlm, munge (apt-get) and submitit (pip) where" \
         "they are missing, and runs munged, slurmctld and slurmd: give --yes-install if this machine" \
         "may be changed" >&2
    exit 2
fi
if [ "$(id -u)" != 0 ]; then
    echo "slurm_trial.sh: nothing was done: the daemons of SLURM need root" >&2
    exit 2
fi
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
command -v slurmctld munged sacct >/dev/null || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge
}
$python -c 'import submitit' || $python -m pip install --quiet submitit

home=$(mktemp -d /tmp/slurm_trial.XXXXXX)
chmod 755 "$home"
pids=()
finish() {
    squeue -h -o %A 2>/dev/null | xargs -r scancel 2>/dev/null && sleep 2
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill "${pids[i]}" 2>/dev/null || true
        wait "${pids[i]}" 2>/dev/null || true
    done
    if [ -n "${KEEP:-}" ]; then echo "kept: $home"; else rm -rf "$home"; fi
}
trap finish EXIT

mkdir -m 700 "$home/munge"
mkdir "$home/state" "$home/spool" "$home/data"
dd if=/dev/urandom of="$home/munge/key" bs=1024 count=1 status=none
chmod 600 "$home/munge/key"
cores=$(nproc)
cat > "$home/slurm.conf" <<EOF
ClusterName=trial
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$home/munge.socket
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobCompType=jobcomp/filetxt
JobCompLoc=$home/completed
ReturnToService=2
MinJobAge=3600
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$cores State=UNKNOWN
PartitionName=trial Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP
EOF
export SLURM_CONF=$home/slurm.conf

munged --foreground --force --key-file="$home/munge/key" --socket="$home/munge.socket" \
       --pid-file="$home/munge/pid" --log-file="$home/munge/log" --seed-file="$home/munge/seed" \
       >"$home/munged.out" 2>&1 & pids+=($!)
until [ -S "$home/munge.socket" ]; do sleep 0.1; done
slurmctld -D >"$home/slurmctld.log" 2>&1 & pids+=($!)
slurmd -D >"$home/slurmd.log" 2>&1 & pids+=($!)
for _ in $(seq 60); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 0.5; done
sinfo
sinfo -h -o %T | grep -q idle || { tail -n 5 "$home"/slurmctld.log "$home"/slurmd.log; exit 1; }

cat > "$home/trial.yaml" <<EOF
title: Two tiny cells
columns: {digits: {dataset: seq-digits, n_splits: 5}}
rows:
  SGD: {model: sgd, lr: 0.01, n_epochs: 1}
  SCROLL: {model: scroll, buffer_size: 0}
EOF
sweep() {
    echo "== sweep.py $* --engine slurm"
    $python scripts/sweep.py "$home/trial.yaml" --engine slurm "$@" \
        --extra -- --base_path "$home/data" --device cpu --num_threads 1
}
settled() { until [ -z "$(squeue -h)" ]; do sleep 1; done; }
sweep --seeds 1
sleep 3
squeue
settled
sacct --completion --format=JobID,JobName,State,Start,End 2>/dev/null

sweep --seeds 2                                         # the first seed is finished
until [ -n "$(squeue -h -t R)" ]; do sleep 0.2; done
sweep --seeds 2                                         # the second waits or runs
sleep 8
job=$(squeue -h -t R -o %A | head -n 1)
echo "== job $job gets the signal that it will be preempted"
scancel --signal=USR2 "$job"
sleep 2
scontrol show job "$job" | grep -E 'JobState|Requeue'
scontrol update jobid="$job" starttime=now 2>/dev/null || true      # it would wait for two minutes
squeue
settled
sweep --seeds 2
settled

echo '== rows'
for model in sgd scroll; do
    $python scripts/show.py "$home/data/results/class-il/seq-digits/$model/mean_accs.csv" \
        model seed final_accuracy finished host
done
cat "$home/data/sweeps/trial/SGD-digits-s1.log"
