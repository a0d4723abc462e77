#!/bin/sh
# Ends a run that prints no value, a line that begins with a number: its start makes no progress, such
# as MPI_Init while a link is down.
#   started.sh RUN SECONDS SHELL
# SHELL is the process whose child the launcher is.
run=$1 waited=0
while [ "$waited" -lt "$2" ]; do
    ! grep -qs '^ *[0-9]' "sample-$run.out" || exit 0
    sleep 1
    waited=$((waited + 1))
done
echo "$run" >>not-started.txt
for signal in TERM KILL; do
    # shellcheck disable=SC2009
    ps -o pid=,ppid= -A | while read -r pid parent; do
        [ "$parent" != "$3" ] || [ "$pid" = $$ ] || kill -$signal "$pid"
    done
    # A launcher ends its tasks first.
    sleep 10
done
