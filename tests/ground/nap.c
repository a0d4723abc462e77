/* MPI polls without a pause while it waits. Ten nodes that share two cores then take them from those
 * that have something to do. Preloaded, this lets the kernel wait where nothing came for a while. What
 * comes over the network ends that wait; what comes within a node does not, so it is short. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

/* Polls, of 0.5 to 2 us, in which nothing comes: until a task waits, and until it waits again after
 * something came. An answer takes 20 us and is polled for; a frame at 50 Mbit/s takes 240 us. */
enum { IDLE = 1000, SOON = 200 };
static const struct timespec WAIT = {0, 100000};

static int is_idle(int found)
{
    static __thread int empty;
    if (found)
        empty = empty > SOON ? empty - SOON : 0;
    else if (empty < IDLE)
        empty++;
    return empty == IDLE;
}

int poll(struct pollfd *files, nfds_t count, int timeout)
{
    static int (*real)(struct pollfd *, nfds_t, int);
    if (!real)
        real = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    int found = real(files, count, timeout);
    return timeout || !is_idle(found) ? found : ppoll(files, count, &WAIT, 0);
}

int epoll_wait(int set, struct epoll_event *events, int most, int timeout)
{
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real)
        real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    int found = real(set, events, most, timeout);
    struct pollfd file = {set, POLLIN, 0};
    if (timeout || !is_idle(found) || ppoll(&file, 1, &WAIT, 0) <= 0)
        return found;
    return real(set, events, most, 0);
}
