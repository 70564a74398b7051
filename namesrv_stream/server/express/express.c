#define _GNU_SOURCE
#include "express.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

enum {
    EVENTS = 256,
    READ_BYTES = 16 * 1024,   /* at once, of one connection */
    GATHERED_BYTES = 256 * 1024, /* of answers, before they are sent */
    MAX_ANSWER_BYTES = 128 * 1024, /* without lengths and opaque; longer ones are Python's */
    NOBODY = -1,
};

/* By file descriptor. A number that is used again is another connection: events that were fetched before are known by
 * their generation. */
struct lent {
    uint64_t id; /* 0: not lent */
    uint32_t generation;
    bool is_active; /* stands among the active ones */
};

struct express {
    pthread_t thread;
    int epoll, stop, given;
    char in[READ_BYTES], out[GATHERED_BYTES]; /* the thread's */

    pthread_mutex_t lock; /* for all below; never held while anything is read or sent */
    pthread_cond_t served;
    int serving; /* file descriptor */
    uint64_t serves; /* how often that ended */
    struct lent *lent;
    int *active; /* file descriptors, each once, as many as lent has room for */
    size_t room, active_count;
    bool is_stopped;
    struct given_back *first, **last;
    struct answers *answers;
    const uint64_t *bounds_ns;
    uint64_t *counts, total_ns;
    size_t bounds;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t event_of(int fd, uint32_t generation) { return (uint64_t)generation << 32 | (uint32_t)fd; }

/* ---- the thread ---- */

static void give_back(struct express *express, int fd, struct text unread, struct text unsent) {
    struct given_back *given = malloc(sizeof *given + unread.length + unsent.length);
    if (given == NULL)
        abort(); /* what was read would be lost */
    *given = (struct given_back){.id = express->lent[fd].id, .unread = unread.length, .unsent = unsent.length};
    memcpy(given->bytes, unread.bytes, unread.length);
    memcpy(given->bytes + unread.length, unsent.bytes, unsent.length);
    express->lent[fd].id = 0;
    epoll_ctl(express->epoll, EPOLL_CTL_DEL, fd, NULL);
    if (express->first == NULL)
        eventfd_write(express->given, 1);
    *express->last = given;
    express->last = &given->next;
}

/* Writes the answers to what is whole and known, as far as there is room; returns how many. ``unread`` and ``out`` are
 * what is left and what is written. */
static unsigned answer_known(struct express *express, struct text *unread, struct text *out, bool *is_full) {
    unsigned answered = 0;
    struct query query;
    *is_full = false;
    while (unread->length > LENGTHS) {
        size_t length = LENGTH + (size_t)read_length(unread->bytes);
        if (length > unread->length || !cut_query((struct text){unread->bytes + LENGTH, length - LENGTH}, &query))
            break;
        pthread_mutex_lock(&express->lock);
        size_t written =
            write_answer(express->answers, &query, express->out + out->length, sizeof express->out - out->length);
        pthread_mutex_unlock(&express->lock);
        *is_full = written == SIZE_MAX;
        if (written == 0 || *is_full)
            break;
        out->length += written;
        unread->bytes += length;
        unread->length -= length;
        answered++;
    }
    return answered;
}

static void count_answers(struct express *express, unsigned answered, uint64_t took_ns) {
    size_t at = 0;
    while (at < express->bounds && express->bounds_ns[at] < took_ns)
        at++;
    express->counts[at] += answered;
    express->total_ns += answered * took_ns;
}

static void serve(struct express *express, uint64_t event) {
    int fd = (int)(uint32_t)event;
    pthread_mutex_lock(&express->lock);
    bool is_lent = express->lent[fd].id != 0 && express->lent[fd].generation == event >> 32;
    express->serving = is_lent ? fd : NOBODY;
    pthread_mutex_unlock(&express->lock);
    if (!is_lent)
        return;

    ssize_t size = recv(fd, express->in, sizeof express->in, MSG_DONTWAIT);
    bool is_nothing = size < 0 && (errno == EAGAIN || errno == EINTR);
    uint64_t began_ns = now_ns();
    struct text unread = {express->in, size < 0 ? 0 : (size_t)size}, out;
    unsigned answered = 0;
    bool is_full;
    do {
        out = (struct text){express->out, 0};
        answered += answer_known(express, &unread, &out, &is_full);
        ssize_t sent = out.length > 0 ? send(fd, out.bytes, out.length, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (sent > 0)
            out = (struct text){out.bytes + sent, out.length - (size_t)sent};
    } while (is_full && out.length == 0);
    uint64_t took_ns = now_ns() - began_ns;

    pthread_mutex_lock(&express->lock);
    struct lent *lent = &express->lent[fd];
    if (answered > 0) {
        count_answers(express, answered, took_ns);
        if (!lent->is_active) {
            lent->is_active = true;
            express->active[express->active_count++] = fd;
        }
    }
    /* Nothing to read is the end of it, or an error: Python finds out which. */
    if (unread.length > 0 || out.length > 0 || (size <= 0 && !is_nothing))
        give_back(express, fd, unread, out);
    express->serving = NOBODY;
    express->serves++;
    pthread_cond_broadcast(&express->served);
    pthread_mutex_unlock(&express->lock);
}

static void *run(void *argument) {
    struct express *express = argument;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(express->epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if ((int)(uint32_t)events[i].data.u64 == express->stop)
                return NULL;
            serve(express, events[i].data.u64);
        }
    }
}

/* ---- what Python calls ---- */

static bool start_thread(struct express *express) {
    sigset_t all, before;
    sigfillset(&all); /* signals are the interpreter's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&express->thread, NULL, run, express);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        errno = error;
        return false;
    }
    pthread_setname_np(express->thread, "express");
    express->is_stopped = false;
    return true;
}

void express_free(struct express *express) {
    express_stop(express);
    for (struct given_back *given; (given = express_given_back(express)) != NULL;)
        free(given);
    if (express->epoll >= 0) close(express->epoll);
    if (express->stop >= 0) close(express->stop);
    if (express->given >= 0) close(express->given);
    free_answers(express->answers);
    free(express->lent);
    free(express->active);
    free((void *)express->bounds_ns);
    free(express->counts);
    pthread_cond_destroy(&express->served);
    pthread_mutex_destroy(&express->lock);
    free(express);
}

struct express *express_start(size_t max_answers_bytes, uint64_t seed, const uint64_t *bounds_ns, size_t bounds) {
    struct express *express = calloc(1, sizeof *express);
    if (express == NULL)
        return NULL;
    express->is_stopped = true;
    pthread_mutex_init(&express->lock, NULL);
    pthread_cond_init(&express->served, NULL);
    express->serving = NOBODY;
    express->last = &express->first;
    express->epoll = epoll_create1(EPOLL_CLOEXEC);
    express->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    express->given = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    express->answers = new_answers(max_answers_bytes, seed);
    uint64_t *copy = calloc(bounds, sizeof *copy);
    express->bounds_ns = copy;
    express->bounds = bounds;
    express->counts = calloc(bounds + 1, sizeof *express->counts);
    struct epoll_event stop = {.events = EPOLLIN, .data.u64 = event_of(express->stop, 0)};
    if (express->epoll < 0 || express->stop < 0 || express->given < 0 || express->answers == NULL || copy == NULL ||
        express->counts == NULL || epoll_ctl(express->epoll, EPOLL_CTL_ADD, express->stop, &stop) != 0) {
        express_free(express);
        return NULL;
    }
    memcpy(copy, bounds_ns, bounds * sizeof *copy);
    if (!start_thread(express)) {
        express_free(express);
        return NULL;
    }
    return express;
}

void express_stop(struct express *express) {
    pthread_mutex_lock(&express->lock);
    bool is_running = !express->is_stopped;
    express->is_stopped = true;
    pthread_mutex_unlock(&express->lock);
    if (!is_running)
        return;
    eventfd_write(express->stop, 1);
    pthread_join(express->thread, NULL);
}

static bool make_room(struct express *express, int fd) {
    if ((size_t)fd < express->room)
        return true;
    size_t room = 2 * (size_t)fd + 64;
    struct lent *lent = realloc(express->lent, room * sizeof *lent);
    if (lent == NULL)
        return false;
    express->lent = lent;
    int *active = realloc(express->active, room * sizeof *active);
    if (active == NULL)
        return false;
    express->active = active;
    memset(lent + express->room, 0, (room - express->room) * sizeof *lent);
    express->room = room;
    return true;
}

static bool borrow(struct express *express, int fd, uint64_t id) {
    if (express->is_stopped || !make_room(express, fd))
        return false;
    struct lent *lent = &express->lent[fd];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = event_of(fd, ++lent->generation)};
    lent->id = id;
    if (epoll_ctl(express->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return true;
    lent->id = 0;
    return false;
}

ssize_t express_lend(struct express *express, int fd, uint64_t id, const char *frame, size_t frame_length,
                     const char *answer, size_t length) {
    struct query query;
    if (!cut_query((struct text){frame, frame_length}, &query))
        return 0;
    pthread_mutex_lock(&express->lock);
    bool is_known = knows_answer(express->answers, &query);
    pthread_mutex_unlock(&express->lock);
    if (!is_known)
        return 0;
    ssize_t sent = send(fd, answer, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 || (size_t)sent < length)
        return sent < 0 ? 0 : sent;
    pthread_mutex_lock(&express->lock);
    bool is_lent = borrow(express, fd, id);
    pthread_mutex_unlock(&express->lock);
    return is_lent ? EXPRESS_LENT : sent;
}

bool express_take_back(struct express *express, int fd, uint64_t id) {
    pthread_mutex_lock(&express->lock);
    /* No further event of it: the thread would serve a busy one again before it is seen here that it has not. */
    if ((size_t)fd < express->room && express->lent[fd].id == id)
        epoll_ctl(express->epoll, EPOLL_CTL_DEL, fd, NULL);
    while (express->serving == fd)
        pthread_cond_wait(&express->served, &express->lock);
    bool is_lent = (size_t)fd < express->room && express->lent[fd].id == id;
    if (is_lent)
        express->lent[fd].id = 0;
    pthread_mutex_unlock(&express->lock);
    return is_lent;
}

int express_given_back_fd(const struct express *express) { return express->given; }

struct given_back *express_given_back(struct express *express) {
    pthread_mutex_lock(&express->lock);
    struct given_back *given = express->first;
    if (given != NULL && (express->first = given->next) == NULL) {
        express->last = &express->first;
        eventfd_t count;
        eventfd_read(express->given, &count);
    }
    pthread_mutex_unlock(&express->lock);
    return given;
}

void express_forget_given_back(struct given_back *given_back) { free(given_back); }

void express_know(struct express *express, const char *frame, size_t length, const char *head, size_t head_length,
                  const char *tail, size_t tail_length, uint32_t header_length) {
    struct query query;
    if (!cut_query((struct text){frame, length}, &query) || head_length + tail_length > MAX_ANSWER_BYTES)
        return;
    pthread_mutex_lock(&express->lock);
    know_answer(express->answers, &query, (struct text){head, head_length}, (struct text){tail, tail_length},
                header_length);
    pthread_mutex_unlock(&express->lock);
}

size_t express_find(struct express *express, const char *frame, size_t length, char *at, size_t room) {
    struct query query;
    if (!cut_query((struct text){frame, length}, &query))
        return 0;
    pthread_mutex_lock(&express->lock);
    size_t written = write_answer(express->answers, &query, at, room);
    pthread_mutex_unlock(&express->lock);
    return written == SIZE_MAX ? 0 : written;
}

void express_forget(struct express *express, const char *topics, size_t length) {
    pthread_mutex_lock(&express->lock);
    for (const char *end = topics + length; topics < end;) {
        struct text topic = {topics, strnlen(topics, (size_t)(end - topics))};
        forget_topic(express->answers, topic);
        topics += topic.length + 1;
    }
    pthread_mutex_unlock(&express->lock);
}

void express_forget_all(struct express *express) {
    pthread_mutex_lock(&express->lock);
    forget_all(express->answers);
    pthread_mutex_unlock(&express->lock);
}

/* An answer is sent before it is counted; whoever has read one finds it counted. */
static void await_served(struct express *express) {
    uint64_t serves = express->serves;
    while (express->serving != NOBODY && express->serves == serves)
        pthread_cond_wait(&express->served, &express->lock);
}

size_t express_active(struct express *express, uint64_t *ids, size_t room) {
    size_t count = 0;
    pthread_mutex_lock(&express->lock);
    await_served(express);
    while (express->active_count > 0 && count < room) {
        struct lent *lent = &express->lent[express->active[--express->active_count]];
        lent->is_active = false;
        if (lent->id != 0)
            ids[count++] = lent->id;
    }
    pthread_mutex_unlock(&express->lock);
    return count;
}

void express_figures(struct express *express, uint64_t *figures) {
    pthread_mutex_lock(&express->lock);
    await_served(express);
    memcpy(figures, express->counts, (express->bounds + 1) * sizeof *figures);
    figures[express->bounds + 1] = express->total_ns;
    figures[express->bounds + 2] = known_bytes(express->answers);
    pthread_mutex_unlock(&express->lock);
}
