#!/usr/bin/env bash
# A labelling run on a Slurm cluster as a chain of jobs: each job queues the next job, which resumes the run.
# Usage, with mclabel on the PATH: sbatch recipes/slurm.sh CONFIG out=/shared/runs/mine [KEY=VALUE ...]
# To end the chain: scancel --name=mclabel-chain
#
# This script ran on one node, with Slurm 22.05 and a bundled model. On several nodes, and with GPUs: planned, not run.
#
# Set options of sbatch in this file, or in variables such as SBATCH_PARTITION, SBATCH_ACCOUNT and
# SBATCH_TIMELIMIT, because the next job does not get the options of the command line. `out` and the
# input files must be on a file system that all nodes share.
#SBATCH --job-name=mclabel-chain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --no-kill
#SBATCH --no-requeue
#SBATCH --output=%x-%j.log
##SBATCH --gpus-per-node=8
set -euo pipefail
type mclabel ray >/dev/null # a job without them must not queue another one

# Maximum number of jobs that are left in this chain, including this job.
links=${LINKS:-20}
next=''
if ((links > 1)); then
    next=$(LINKS=$((links - 1)) sbatch --parsable --dependency="afterany:$SLURM_JOB_ID" "$0" "$@")
    next=${next%%;*}
fi

# At the time limit, or when a user cancels the job, this script receives SIGTERM. It passes the signal
# to the driver, which then writes its journals.
driver=''
trap '[[ -z $driver ]] || kill -TERM "$driver" 2>/dev/null || true' TERM

# Start one Ray cluster on all nodes, with its token in the home folder. The cluster ends with the job.
export RAY_AUTH_MODE=token
ray get-auth-token --generate >/dev/null
head=$(hostname):$((20000 + SLURM_JOB_ID % 10000))
# shellcheck disable=SC2016  # the nodes' shells expand it
srun --overlap --no-kill --wait=0 bash -c '
    if ((SLURM_NODEID == 0)); then
        exec ray start --head --port="${1##*:}" --include-dashboard=false --disable-usage-stats --block
    fi
    until ray start --address="$1" --block; do sleep 5; done' node "$head" \
    >"$SLURM_JOB_NAME-$SLURM_JOB_ID-ray.log" 2>&1 &
cluster=$!
until ray status --address "$head" >/dev/null 2>&1; do
    kill -0 "$cluster" || exit 1
    sleep 2
done

mclabel label "$@" ray.address="$head" &
driver=$!
code=0
wait "$driver" || code=$?
while kill -0 "$driver" 2>/dev/null; do # the signal ended `wait` before the driver
    code=0
    wait "$driver" || code=$?
done

# If a signal stopped the driver, the next job continues the run. Otherwise the run is finished, or it
# failed and a user must look at the log, so the next job is cancelled.
if ((code <= 128)) && [[ -n $next ]]; then
    scancel "$next"
fi
exit "$code"
