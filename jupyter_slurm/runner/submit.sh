#!/bin/sh
# Runs sbatch exactly once for a job directory and writes its answer there, whatever becomes of who asked.
#
#   submit.sh DIR ATTEMPT LIMITS sbatch [options] SCRIPT [args]
#
# DIR/submit.ATTEMPT       made exclusively: whoever comes second does nothing (exit 75). It says "locked" and stays locked
#                          (flock) while this script or sbatch lives, so that others can tell "still running" from "died".
# DIR/submit.ATTEMPT.out   what sbatch printed; .err the same for its errors; .rc its exit code, written last.
# LIMITS                   soft limits to set first, as "n=1024 s=8192": letters of ulimit, separated by spaces.
set -u
claim="$1/submit.$2"
limits="$3"
shift 3
umask_before=$(umask)
umask 077
set -C
true 2>/dev/null >"$claim" || exit 75
set +C
exec 9<>"$claim"
if command -v flock >/dev/null && flock -n 9; then echo locked >&9; fi
for limit in $limits; do
    ulimit -S "-${limit%%=*}" "${limit#*=}" 2>/dev/null || true
done
exec 3>"$claim.out" 4>"$claim.err" 5>"$claim.rc"
umask "$umask_before"
"$@" >&3 2>&4 3>&- 4>&- 5>&- </dev/null
printf '%s\n' "$?" >&5
