#!/usr/bin/env bash
# A sweep in 16 shards on a real Slurm: four virtual nodes on this machine, three of which are killed in
# the middle, a task that is cancelled, tasks that run into their time limit and are started again. The
# rows must be those of one process: none lost, none twice. Then a sweep whose kernels a C compiler makes:
# each once over all nodes, by a step of its own, and by tasks that share a cache. And a task that tries
# points again, and is started again meanwhile.
#
#     tests/slurm/run.sh PROGRAM
#
# Needs root and Debian's slurm-wlm, and says SKIPPED where they can't be had.
set -euo pipefail
program=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)

skip() {
    echo "SKIPPED: $*"
    exit 0
}
fail() {
    echo "FAILED: $*" >&2
    squeue -r 2>/dev/null || true
    "$program" status "$submission" 2>/dev/null || true
    tail -n 30 "$submission"/logs/*.log "$work"/slurm/log/slurmctld.log 2>/dev/null || true
    exit 1
}
# Waits until a command succeeds: `within SECONDS WHAT COMMAND...`.
within() {
    local seconds=$1 what=$2
    shift 2
    local end=$((SECONDS + seconds))
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $end ]; then fail "not within $seconds s: $what"; fi
        sleep 0.3
    done
}

[ "$(id -u)" = 0 ] || skip "starting Slurm's daemons takes root"
if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null; then
    command -v apt-get >/dev/null || skip "there is no Slurm, and no apt-get to install it"
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends slurm-wlm slurmctld slurmd munge) >/dev/null 2>&1 \
        || skip "slurm-wlm can't be installed"
fi

work=$(mktemp -d /tmp/sweeper-slurm.XXXXXX)
submission=$work/none
export SLURM_CONF=$work/slurm/slurm.conf
stop() {
    # Tasks first: their steps outlive the daemons.
    timeout 10 scancel --me 2>/dev/null || true
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -n "$(timeout 5 squeue -h 2>/dev/null)" ] || break
        sleep 0.5
    done
    for pid in "$work"/slurm/run/*.pid; do
        [ ! -f "$pid" ] || kill "$(cat "$pid")" 2>/dev/null || true
    done
    [ ! -f "$work/munged.pid" ] || kill "$(cat "$work/munged.pid")" 2>/dev/null || true
    sleep 0.5
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap stop EXIT

# Munge, with a key and a socket of its own.
install -d -o munge -g munge -m 0755 "$work/munge"
chmod 0755 "$work"
dd if=/dev/urandom of="$work/munge/key" bs=64 count=1 status=none
chown munge:munge "$work/munge/key"
chmod 0600 "$work/munge/key"
setpriv --reuid=munge --regid=munge --clear-groups munged --key-file="$work/munge/key" \
    --socket="$work/munge/socket" --pid-file="$work/munge/pid" --log-file="$work/munge/log" \
    --seed-file="$work/munge/seed" --num-threads=2 || skip "munge does not start"
cp "$work/munge/pid" "$work/munged.pid"

mkdir -p "$work"/slurm/{state,log,run} "$work"/slurm/spool/n{1,2,3,4}
host=$(hostname -s)
sed -e "s|@WORK@|$work|g; s|@HOST@|$host|g" "$here/slurm.conf" >"$SLURM_CONF"
start_node() { slurmd -f "$SLURM_CONF" -N "$1"; }
slurmctld -f "$SLURM_CONF" || skip "slurmctld does not start"
for node in n1 n2 n3 n4; do start_node "$node" || skip "slurmd does not start"; done
within 20 "four idle nodes" bash -c '[ "$(sinfo -h -N -t idle | wc -l)" = 4 ]'

# The same sweep by one process, beside.
export SWEEPER_CACHE_DIR=$work/cache XDG_STATE_HOME=$work/home SWEEPER_PATIENCE_S=5
cd "$work"
grep -v HANG "$here/sweep.toml" >quick.toml
"$program" run quick.toml --shard 3/16 --output-dir dealt --quiet || [ $? = 4 ] || fail "the third shard"
hang=$(python3 -c 'import json, sys
print(*sorted({json.loads(line)["parameters"]["elements"] for line in sys.stdin if "\"point\"" in line}), sep=", ")' \
    < <(cat dealt/slurmed-*/shards/3-of-16.jsonl))
sed -e "s/HANG/$hang/" "$here/sweep.toml" >sweep.toml
"$program" run sweep.toml --output-dir alone --quiet >alone.log 2>&1 &
alone=$!

echo "== 16 shards on four nodes"
"$program" submit sweep.toml --dry-run >dry.txt
grep -q 'array\|SLURM_ARRAY_TASK_ID' dry.txt || fail "no script in $(cat dry.txt)"
"$program" submit sweep.toml --json >submitted.json
submission=$(echo "$work"/results/.submissions/*)
[ -f "$submission/jobs.json" ] || fail "no submission"
array=$(python3 -c 'import json; print(json.load(open("submitted.json"))["arrays"][0])')
# A second one has nothing to add while the first is queued.
"$program" submit sweep.toml >twice.txt 2>&1
grep -q 'nothing to submit' twice.txt || fail "submitted twice: $(cat twice.txt)"

measured() { cat results/slurmed-*/shards/*.jsonl 2>/dev/null | grep -c '"point"'; }
has_measured() { [ "$(measured)" -ge "$1" ]; }
within 40 "first rows" has_measured 100

echo "== one task is cancelled, three nodes are killed"
task=$(squeue -h -r -t R -o %i -j "$array" | head -n 1)
scancel "$task"
# All processes of a node end with it: Slurm's, the tasks' and the workers'.
kill_node() {
    local pids
    pids=$(grep -lsz "SLURMD_NODENAME=$1" /proc/[0-9]*/environ | cut -d/ -f3 || true)
    local daemons
    daemons=$(pgrep -f "slurmd -f $SLURM_CONF -N $1\$" || true)
    local steps
    steps=$(for pid in $pids; do
        parent=$(awk '/^PPid/ { print $2 }' "/proc/$pid/status" 2>/dev/null || true)
        case "$(cat "/proc/$parent/comm" 2>/dev/null)" in slurmstepd) echo "$parent" ;; esac
    done | sort -u)
    # shellcheck disable=SC2086
    kill -9 $daemons $steps $pids 2>/dev/null || true
    rm -f "$work/slurm/run/slurmd.$1.pid"
}
for node in n1 n2 n3; do kill_node "$node"; done
for node in n1 n2 n3; do scontrol update nodename="$node" state=down reason=killed; done
"$program" status "$submission" --json >during.json
grep -q '"gone":' during.json || echo "(no shard was seen between its node's end and its next start)"
for node in n1 n2 n3; do start_node "$node"; done
for node in n1 n2 n3; do scontrol update nodename="$node" state=resume 2>/dev/null || true; done

echo "== until nothing is queued"
is_over() { [ -z "$(squeue -h -o %i -j "$1" 2>/dev/null)" ]; }
within 110 "the end of the array" is_over "$array"
# What was cancelled is missing; it is submitted again, and nothing else.
"$program" submit sweep.toml --json >again.json
missing=$(python3 -c 'import json; print(len(json.load(open("again.json"))["submitted"]))')
[ "$missing" -ge 1 ] && [ "$missing" -le 4 ] || fail "$missing tasks were submitted again"
array=$(python3 -c 'import json; print(json.load(open("again.json"))["arrays"][-1])')
report=$(python3 -c 'import json; print(json.load(open("again.json"))["others"][-1])')
within 60 "the end of what was missing" is_over "$array"
within 30 "the report" is_over "$report"

echo "== the rows are those of one process"
wait "$alone" || [ $? = 4 ] || fail "the process alone: $(cat alone.log)"
"$program" submit sweep.toml >done.txt 2>&1
grep -q 'nothing to submit; 16 done' done.txt || fail "not all shards are done: $(cat done.txt)"
run=$(echo results/slurmed-*)
python3 "$here/compare.py" alone/slurmed-* "$run" || fail "rows differ"
[ -f "$run/report/index.html" ] || fail "no report"
grep -q ' brought nothing new\|clock is' "$submission"/logs/*.log && fail "a task gave up, or doubts a clock"
"$program" merge "$run" | tee merged.txt
grep -q '320 rows of 17 journals, all 320 points' merged.txt || fail "not joined: $(cat merged.txt)"
python3 "$here/compare.py" alone/slurmed-* "$run" || fail "joined rows differ"
grep -q 'is queued again' "$submission"/logs/3.log \
    || fail "no task ran into its time limit, though all sizes of shard 3 hang: $hang"
"$program" cancel "$submission" | grep -q 'no job of it' || fail "jobs are left"

echo "== each kernel is compiled once, by a step before the tasks"
cp "$here/compiled.toml" "$here/axpy.c" .
OWN=6     # Kernels of the sweep, which each task needs.
KERNELS=8 # And two that probe the processor.
sum_compiled() {
    python3 -c 'import json, sys; print(sum(json.load(open(f))["usage"]["compiled"] for f in sys.argv[1:]))' "$@"
}
total() {
    "$program" cache stats --json --cache-dir "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["total"][sys.argv[1]])' "$2"
}
env -u SWEEPER_CACHE_DIR "$program" submit compiled.toml --json >compiled.json
submission=$(echo "$work"/results/.submissions/compiled-*)
array=$(python3 -c 'import json; print(json.load(open("compiled.json"))["arrays"][0])')
report=$(python3 -c 'import json; print(json.load(open("compiled.json"))["others"][-1])')
within 90 "the end of the tasks" is_over "$array"
within 30 "their report" is_over "$report"
grep -q "$KERNELS kernels: $KERNELS compiled" "$submission"/logs/compile-*.log \
    || fail "the step compiled otherwise: $(cat "$submission"/logs/compile-*.log)"
run=$(echo results/compiled-*)
[ "$(wc -l <"$run/records.csv")" = 97 ] || fail "not 96 rows in $run"
[ "$(sum_compiled "$run"/shards/*.state.json)" = 0 ] || fail "a task compiled"
[ "$(total caches/shared stores)" = "$KERNELS" ] || fail "the shared cache: $("$program" cache stats --cache-dir caches/shared)"
nodes=0
for cache in caches/n*; do
    fetched=$(total "$cache" fetched)
    [ "$fetched" -ge "$OWN" ] && [ "$fetched" -le "$KERNELS" ] || fail "$cache fetched $fetched kernels"
    nodes=$((nodes + 1))
done
echo "$KERNELS compiled by the step, none by 8 tasks, each fetched once by each of $nodes nodes"

echo "== each kernel is compiled once, by tasks that share a cache"
tasks=()
for shard in 1 2 3 4 5 6 7 8; do
    env -u SWEEPER_CACHE_DIR srun -n 1 -c 1 --mem=200M "$program" run compiled.toml --shard "$shard/8" --quiet \
        --cache-dir filled --set 'cache.upstream=[]' --output-dir beside >"beside-$shard.log" 2>&1 &
    tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || fail "a task: $(cat beside-*.log)"; done
compiled=$(sum_compiled beside/compiled-*/shards/*.state.json)
[ "$(wc -l <"$(echo beside/compiled-*)/records.csv")" = 97 ] || fail "not 96 rows beside"
[ "$compiled" = "$OWN" ] || fail "8 tasks compiled $compiled kernels"
[ "$(total filled stores)" = "$KERNELS" ] || fail "$(total filled stores) kernels stored"
echo "$KERNELS compiled by 8 tasks on four nodes, of which each needs all"

echo "== kernels for GPUs are compiled on a node without one"
if [ -n "${SWEEPER_CUDA_LIBS:-}" ]; then
    env -u SWEEPER_CACHE_DIR "$program" submit sweep.toml --shards 2 --set grid.elements=1,3 --output-dir arched \
        --set 'cluster.arch="sm_80"' --set 'cache.upstream=["caches/gpus"]' --set 'cache.dir="caches/unused"' \
        --json >arched.json 2>arched.log
    submission=$(python3 -c 'import json; print(json.load(open("arched.json"))["folder"])')
    report=$(python3 -c 'import json; print(json.load(open("arched.json"))["others"][-1])')
    within 60 "the end of it" is_over "$report"
    grep -q ' kernels.*: [1-9][0-9]* compiled, 0 in the cache before, 0 failed' "$submission"/logs/compile-*.log \
        || fail "nothing was compiled: $(cat "$submission"/logs/compile-*.log)"
    "$program" cache ls --cache-dir caches/gpus | tee gpus.txt
    grep -q cubin gpus.txt || fail "no machine code for GPUs"
else
    echo "(not tested: SWEEPER_CUDA_LIBS names no NVRTC)"
fi

echo "== a task that is started again goes on with what it was to try again"
# Two sizes that hang, with two backends each.
two=$(cut -d, -f1,2 <<<"$hang")
some=(sweep.toml --shards 1 --output-dir tried --set "grid.elements=[$two]")
"$program" submit "${some[@]}" --json >first.json 2>tried.log
submission=$(python3 -c 'import json; print(json.load(open("first.json"))["folder"])')
job=$(python3 -c 'import json; print(json.load(open("first.json"))["arrays"][-1])')
within 60 "the first tries" is_over "$job"
"$program" submit "${some[@]}" --retry timeout --json >second.json 2>>tried.log
job=$(python3 -c 'import json; print(json.load(open("second.json"))["arrays"][-1])')
again() { cat tried/slurmed-*/shards/1-of-1.jsonl 2>/dev/null | grep -c "\"retried_in\":\"${job}_1\""; }
has_again() { [ "$(again)" -ge "$1" ]; }
within 40 "the first of the second tries" has_again 1
scontrol requeue "${job}_1"
within 20 "that the task is queued" bash -c "squeue -h -r -t PD -o %i -j $job | grep -q ."
[ "$(again)" -lt 4 ] || fail "the task was not started again before it was done"
# It starts when its first credential has ended (slurm.conf). Before that a node refuses it: "Job credential
# revoked".
within 90 "the end of the second tries" is_over "$job"
[ "$(again)" = 4 ] || fail "$(again) points were tried again, and not 4"
[ "$(grep -c '"earlier_rows":1' tried/slurmed-*/shards/1-of-1.jsonl)" = 4 ] || fail "a point was tried twice"

echo "== Slurm's own words"
said=$("$program" submit sweep.toml --partition nowhere 2>&1) && fail "a partition that is not there was taken"
grep -q 'sbatch refused .*invalid partition' <<<"$said" || fail "the refusal was not shown: $said"
echo "passed in $SECONDS s"
