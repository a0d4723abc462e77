/* How much a node's cores do in two seconds: blocks of a million dependent multiplications. */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

int main(void)
{
    volatile uint64_t result = 1;
    double began = now(), ended = began;
    long blocks = 0;
    for (; ended < began + 2; ended = now(), blocks++)
        for (int i = 0; i < 1000000; i++)
            result = result * 6364136223846793005u + 1;
    printf("work: %.3f Mop/s\n", blocks / (ended - began));
    return 0;
}
