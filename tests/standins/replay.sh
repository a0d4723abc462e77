# What the stand-ins share. Variables steer it:
#   STANDIN_OUTPUT   folder of captures: KEY.out, or KEY.N.out for sample N alone
#   STANDIN_SLEEP    seconds to wait after the output was printed
#   STANDIN_WAIT     file without which rank 0 does not end
#   STANDIN_FILL     file that is written until the disk is full, in sample 1
#   STANDIN_KILL     signal that ends rank 0 after its output
#   STANDIN_STATUS   exit code of rank 0
#   STANDIN_REJECTS  anything: the program ignores its input file
#   STANDIN_SAYS     what rank 0 writes on standard error
#   STANDIN_ONCE     file: misbehave only while it is not there, and make it
#   STANDIN_GOOD     folder of the captures that are printed from then on
#   STANDIN_LOG      file that gets a line for each start of rank 0
#   STANDIN_ARGS     file that gets the program's arguments, a line each

pause() {
    [ -z "${STANDIN_SLEEP:-}" ] || sleep "$STANDIN_SLEEP"
    while [ -n "${STANDIN_WAIT:-}" ] && [ ! -e "$STANDIN_WAIT" ]; do
        sleep 0.05
    done
}

# Rank 0 alone prints. The others wait as it does: once a rank has ended, MPICH's proxy polls without
# a pause, and keeps a core busy, until all have.
if [ "${PMI_RANK:-0}" != 0 ]; then
    [ -n "${STANDIN_ONCE:-}" ] || pause
    exit 0
fi
sample=0
[ ! -f samples.txt ] || sample=$(grep -c '' samples.txt)
[ -z "${STANDIN_LOG:-}" ] || echo "$0 $sample" >>"$STANDIN_LOG"
[ -z "${STANDIN_ARGS:-}" ] || printf '%s\n' "$@" >>"$STANDIN_ARGS"
if [ -n "${STANDIN_ONCE:-}" ]; then
    if [ -e "$STANDIN_ONCE" ]; then
        STANDIN_OUTPUT=$STANDIN_GOOD
        unset STANDIN_SLEEP STANDIN_KILL STANDIN_STATUS
    fi
    : >"$STANDIN_ONCE"
fi

# replay KEY: prints the capture.
replay() {
    if [ -f "$STANDIN_OUTPUT/$1.$sample.out" ]; then
        cat "$STANDIN_OUTPUT/$1.$sample.out"
    else
        cat "$STANDIN_OUTPUT/$1.out"
    fi
}

# behave: what comes after the output.
behave() {
    [ -z "${STANDIN_SAYS:-}" ] || echo "$STANDIN_SAYS" >&2
    [ -z "${STANDIN_FILL:-}" ] || [ "$sample" != 1 ] || dd if=/dev/zero of="$STANDIN_FILL" bs=4k
    pause
    [ -z "${STANDIN_KILL:-}" ] || kill -s "$STANDIN_KILL" $$
    exit "${STANDIN_STATUS:-0}"
}
