/* MPI polls without a pause while it waits. Ten nodes that share two cores then take them from those
 * that have something to do. Preloaded, this pauses after polls that found nothing, each of 1.5 to
 * 5 us: a small message is there after fewer of them, and one of 1 MiB, of which a shaped link
 * carries a packet every 240 us, takes tenths of a second. Two tasks of IMB took 96 % of a core with
 * 1000 polls and 20 us, and take 22 % with these; the bandwidths differ by less than 1 %. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

enum { EMPTY = 30, NANOSECONDS = 200000 };

static int paused(int found, int timeout)
{
    static __thread int empty;
    static const struct timespec pause = {0, NANOSECONDS};
    empty = found == 0 && timeout == 0 ? empty + 1 : 0;
    if (empty > EMPTY)
        nanosleep(&pause, 0);
    return found;
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
