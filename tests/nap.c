/* MPI polls without a pause while it waits. Ten nodes that share two cores then take them from those
 * that have something to do. Preloaded, this pauses where nothing came for a while: a message
 * within a node is there sooner, and one that a shaped link carries later. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <time.h>

enum { EMPTY = 1000, NANOSECONDS = 20000 };

static __thread int empty;

static int paused(int found, int timeout)
{
    static const struct timespec pause = {0, NANOSECONDS};
    empty = found == 0 && timeout == 0 ? empty + 1 : 0;
    if (empty > EMPTY)
        nanosleep(&pause, 0);
    return found;
}

/* MPICH yields many times between two looks at the network, and to look costs less. */
int sched_yield(void)
{
    return paused(0, 0);
}

int poll(struct pollfd *files, nfds_t count, int timeout)
{
    static int (*real)(struct pollfd *, nfds_t, int);
    if (!real)
        real = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    return paused(real(files, count, timeout), timeout);
}

int epoll_wait(int set, struct epoll_event *events, int most, int timeout)
{
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real)
        real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    return paused(real(set, events, most, timeout), timeout);
}
