// Watches mapped files: a page that its file has lost becomes a page of zeros, and the watch says so.
//
// A file that becomes shorter while it is mapped loses pages, and whoever reads one of them gets SIGBUS, which ends the
// process without a word. The handler below puts pages of zeros there, marks the range as cut and returns, so that the
// reader goes on to its end. Then the mark makes its result worthless. (Wayland's servers do the same for the buffers of
// their clients.) SIGBUS anywhere else is passed on to the action that was there before.
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

// A mapping. The handler walks over all of them, in any thread and at any time. So none is ever freed, and their order
// never changes; those that do not watch have start 0.
typedef struct watched_t {
    struct watched_t *next;
    struct watched_t *next_unused;
    _Atomic uintptr_t start, end;
    uintptr_t address;
    _Atomic int is_cut;
    int protection;
} watched_t;

// Darwin sends SIGSEGV in some of the cases.
static const int WATCHED_SIGNALS[] = {
    SIGBUS,
#ifdef __APPLE__
    SIGSEGV,
#endif
};
enum { SIGNALS = sizeof WATCHED_SIGNALS / sizeof *WATCHED_SIGNALS };

static _Atomic(watched_t *) watched_all;
// Only the interpreter's thread makes and ends watches.
static watched_t *watched_unused;
static struct sigaction actions_before[SIGNALS];

static int lay_zeros(watched_t *one, uintptr_t at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = at & ~(page - 1);
    uintptr_t end = (atomic_load(&one->end) + page - 1) & ~(page - 1);
    int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    atomic_store(&one->is_cut, 1);
    return mmap((void *)from, end - from, one->protection, flags, -1, 0) != MAP_FAILED;
}

static int is_ours(const siginfo_t *info)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    // Only the system itself sends a code above 0; its address is the one that was read.
    if (info->si_code <= 0)
        return 0;
    for (watched_t *one = atomic_load(&watched_all); one != NULL; one = one->next) {
        uintptr_t start = atomic_load(&one->start);
        if (start != 0 && at >= start && at < atomic_load(&one->end) && atomic_load(&one->start) == start)
            return lay_zeros(one, at);
    }
    return 0;
}

static void on_lost_page(int number, siginfo_t *info, void *context)
{
    int before = errno;
    if (!is_ours(info)) {
        int which = 0;
        while (WATCHED_SIGNALS[which] != number)
            which++;
        struct sigaction *action = &actions_before[which];
        if (action->sa_flags & SA_SIGINFO) {
            action->sa_sigaction(number, info, context);
        } else if (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN) {
            action->sa_handler(number);
        } else {
            // The read that failed is tried again, and ends the process as if there were no handler.
            sigaction(number, action, NULL);
            if (info->si_code <= 0)
                raise(number);
        }
    }
    errno = before;
}

// Installs the handler, unless it is there. A handler that came later and does not know this one stays.
static void install_handler(void)
{
    static int was_installed;
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction now;
        if (sigaction(WATCHED_SIGNALS[i], NULL, &now) != 0)
            continue;
        int is_default = !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL;
        if (was_installed && !is_default)
            continue;
        struct sigaction ours;
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = on_lost_page;
        // A handler before this one may need its own stack, and may raise the signal again.
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&ours.sa_mask);
        actions_before[i] = now;
        sigaction(WATCHED_SIGNALS[i], &ours, NULL);
    }
    was_installed = 1;
}

// NULL if there is no memory.
static watched_t *watch(const void *start, size_t size, int is_writable)
{
    watched_t *one = watched_unused;
    if (one != NULL) {
        watched_unused = one->next_unused;
    } else if ((one = PyMem_RawCalloc(1, sizeof *one)) == NULL) {
        return NULL;
    } else {
        one->next = atomic_load(&watched_all);
        atomic_store(&watched_all, one);
    }
    one->protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
    atomic_store(&one->is_cut, 0);
    one->address = (uintptr_t)start;
    atomic_store(&one->end, one->address + size);
    atomic_store(&one->start, one->address);
    install_handler();
    return one;
}

static void pause_watch(watched_t *one)
{
    atomic_store(&one->start, 0);
}

static void resume_watch(watched_t *one)
{
    atomic_store(&one->start, one->address);
}

static void end_watch(watched_t *one)
{
    pause_watch(one);
    one->next_unused = watched_unused;
    watched_unused = one;
}
