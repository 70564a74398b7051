#define _GNU_SOURCE
#include "lane.h"

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
    READ_BYTES = 16 * 1024,        /* one read of a connection */
    WRITE_BYTES = 256 * 1024,      /* buffer for answers before they are sent */
    MAX_ANSWER_BYTES = 128 * 1024, /* without lengths and opaque; Python sends longer answers */
    MAX_BOUNDS = 64,
    NONE = -1,
};

/* The state of a file descriptor. */
struct slot {
    uint64_t id; /* of the connection that was handed over; 0: none */
    uint64_t view; /* number of its address view */
    bool is_active; /* in the list of connections that had traffic */
    int next_active; /* file descriptor, or NONE */
};

struct lane {
    pthread_t thread;
    int epoll, stop_event, returned_event;
    char in[READ_BYTES], out[WRITE_BYTES]; /* used only by the thread */
    size_t bounds;
    uint64_t bounds_ns[MAX_BOUNDS];

    pthread_mutex_t lock; /* protects everything below; never held during a read or a write of a connection */
    pthread_cond_t served;
    int serving; /* file descriptor, or NONE */
    uint64_t times_served;
    bool is_stopped;
    struct slot *slots; /* by file descriptor */
    size_t slot_count;
    int first_active; /* file descriptor, or NONE */
    struct returned *first_returned, **last_returned;
    struct answers *answers;
    uint64_t counts[MAX_BOUNDS + 1], total_ns;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The kernel may reuse a file descriptor before the thread sees its event; the id detects that. */
static uint64_t event_data(int fd, uint64_t id) { return id << 32 | (uint32_t)fd; }

/* Returns the connection's slot; NULL if it is not handed over. */
static struct slot *slot_of(struct lane *lane, int fd, uint64_t id) {
    bool is_handed_over = (size_t)fd < lane->slot_count && lane->slots[fd].id == id;
    return is_handed_over ? &lane->slots[fd] : NULL;
}

/* ---- the thread ---- */

static void return_connection(struct lane *lane, int fd, struct text unread, struct text unsent) {
    struct returned *returned = malloc(sizeof *returned + unread.length + unsent.length);
    if (returned == NULL)
        abort(); /* otherwise the bytes that were read would be lost */
    *returned = (struct returned){.id = lane->slots[fd].id, .unread = unread.length, .unsent = unsent.length};
    memcpy(returned->bytes, unread.bytes, unread.length);
    memcpy(returned->bytes + unread.length, unsent.bytes, unsent.length);
    lane->slots[fd].id = 0;
    epoll_ctl(lane->epoll, EPOLL_CTL_DEL, fd, NULL);
    if (lane->first_returned == NULL)
        eventfd_write(lane->returned_event, 1);
    *lane->last_returned = returned;
    lane->last_returned = &returned->next;
}

/* Appends to ``out`` the answers to the complete queries at the start of ``unread``, while they are stored and there is
 * room. Moves ``unread`` past these queries, and returns their number. */
static unsigned answer_known(struct lane *lane, uint64_t view, struct text *unread, struct text *out, bool *is_full) {
    unsigned answered = 0;
    struct query query = {.view = view};
    *is_full = false;
    while (unread->length > LENGTHS) {
        size_t length = LENGTH + (size_t)read_length(unread->bytes);
        if (length > unread->length || !cut_query((struct text){unread->bytes + LENGTH, length - LENGTH}, &query))
            break;
        pthread_mutex_lock(&lane->lock);
        size_t written = write_answer(lane->answers, &query, lane->out + out->length, sizeof lane->out - out->length);
        pthread_mutex_unlock(&lane->lock);
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

static void count_answers(struct lane *lane, unsigned answered, uint64_t took_ns) {
    size_t at = 0;
    while (at < lane->bounds && lane->bounds_ns[at] < took_ns)
        at++;
    lane->counts[at] += answered;
    lane->total_ns += answered * took_ns;
}

static void mark_active(struct lane *lane, int fd) {
    struct slot *slot = &lane->slots[fd];
    if (slot->is_active)
        return;
    slot->is_active = true;
    slot->next_active = lane->first_active;
    lane->first_active = fd;
}

/* Returns false unless the event belongs to the connection that is handed over now; ``view`` is that of its client. */
static bool begin_serving(struct lane *lane, int fd, uint64_t event, uint64_t *view) {
    pthread_mutex_lock(&lane->lock);
    uint64_t id = lane->slots[fd].id;
    bool is_current = id != 0 && event_data(fd, id) == event;
    if (is_current) {
        lane->serving = fd;
        *view = lane->slots[fd].view;
    }
    pthread_mutex_unlock(&lane->lock);
    return is_current;
}

static void serve(struct lane *lane, uint64_t event) {
    int fd = (int)(uint32_t)event;
    uint64_t view;
    if (!begin_serving(lane, fd, event, &view))
        return;

    ssize_t size = recv(fd, lane->in, sizeof lane->in, MSG_DONTWAIT);
    bool is_nothing = size < 0 && (errno == EAGAIN || errno == EINTR);
    uint64_t began_ns = now_ns();
    struct text unread = {lane->in, size < 0 ? 0 : (size_t)size}, out;
    unsigned answered = 0;
    bool is_full;
    do {
        out = (struct text){lane->out, 0};
        answered += answer_known(lane, view, &unread, &out, &is_full);
        ssize_t sent = out.length > 0 ? send(fd, out.bytes, out.length, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (sent > 0)
            out = (struct text){out.bytes + sent, out.length - (size_t)sent};
    } while (is_full && out.length == 0);
    uint64_t took_ns = now_ns() - began_ns;

    pthread_mutex_lock(&lane->lock);
    if (answered > 0) {
        count_answers(lane, answered, took_ns);
        mark_active(lane, fd);
    }
    /* If the read returned no data, the peer has closed or there is an error; Python finds out which. */
    if (unread.length > 0 || out.length > 0 || (size <= 0 && !is_nothing))
        return_connection(lane, fd, unread, out);
    lane->serving = NONE;
    lane->times_served++;
    pthread_cond_broadcast(&lane->served);
    pthread_mutex_unlock(&lane->lock);
}

static void *run(void *argument) {
    struct lane *lane = argument;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(lane->epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.u64 == event_data(lane->stop_event, 0))
                return NULL;
            serve(lane, events[i].data.u64);
        }
    }
}

/* ---- start and stop ---- */

static bool start_thread(struct lane *lane) {
    sigset_t all, before;
    sigfillset(&all); /* the interpreter handles all signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&lane->thread, NULL, run, lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        errno = error;
        return false;
    }
    pthread_setname_np(lane->thread, "native-lane");
    lane->is_stopped = false;
    return true;
}

struct lane *lane_start(size_t max_answers_bytes, uint64_t seed, const uint64_t *bounds_ns, size_t bounds) {
    if (bounds > MAX_BOUNDS) {
        errno = EINVAL;
        return NULL;
    }
    struct lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return NULL;
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->served, NULL);
    lane->is_stopped = true;
    lane->serving = lane->first_active = NONE;
    lane->last_returned = &lane->first_returned;
    lane->bounds = bounds;
    memcpy(lane->bounds_ns, bounds_ns, bounds * sizeof *bounds_ns);
    lane->epoll = epoll_create1(EPOLL_CLOEXEC);
    lane->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    lane->returned_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    lane->answers = new_answers(max_answers_bytes, seed);
    struct epoll_event stop = {.events = EPOLLIN, .data.u64 = event_data(lane->stop_event, 0)};
    if (lane->answers != NULL && epoll_ctl(lane->epoll, EPOLL_CTL_ADD, lane->stop_event, &stop) == 0 &&
        lane->returned_event >= 0 && start_thread(lane))
        return lane;
    int error = errno;
    lane_free(lane);
    errno = error;
    return NULL;
}

void lane_stop(struct lane *lane) {
    pthread_mutex_lock(&lane->lock);
    bool is_running = !lane->is_stopped;
    lane->is_stopped = true;
    pthread_mutex_unlock(&lane->lock);
    if (!is_running)
        return;
    eventfd_write(lane->stop_event, 1);
    pthread_join(lane->thread, NULL);
}

void lane_free(struct lane *lane) {
    lane_stop(lane);
    for (struct returned *returned; (returned = lane_next_returned(lane)) != NULL;)
        lane_free_returned(returned);
    int fds[] = {lane->epoll, lane->stop_event, lane->returned_event};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free_answers(lane->answers);
    free(lane->slots);
    pthread_cond_destroy(&lane->served);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

/* ---- connections ---- */

static bool has_slot(struct lane *lane, int fd) {
    if ((size_t)fd < lane->slot_count)
        return true;
    size_t count = 2 * (size_t)fd + 64;
    struct slot *slots = realloc(lane->slots, count * sizeof *slots);
    if (slots == NULL)
        return false;
    memset(slots + lane->slot_count, 0, (count - lane->slot_count) * sizeof *slots);
    lane->slots = slots;
    lane->slot_count = count;
    return true;
}

static bool take_over(struct lane *lane, int fd, uint64_t id, uint64_t view) {
    if (lane->is_stopped || !has_slot(lane, fd))
        return false;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = event_data(fd, id)};
    bool is_watched = epoll_ctl(lane->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
    lane->slots[fd].id = is_watched ? id : 0;
    lane->slots[fd].view = view;
    return is_watched;
}

ssize_t lane_hand_over(struct lane *lane, int fd, uint64_t id, const char *frame, size_t frame_length,
                       const char *answer, size_t length, uint64_t view) {
    struct query query = {.view = view};
    if (!cut_query((struct text){frame, frame_length}, &query))
        return 0;
    pthread_mutex_lock(&lane->lock);
    bool is_known = knows_answer(lane->answers, &query);
    pthread_mutex_unlock(&lane->lock);
    if (!is_known)
        return 0;
    ssize_t sent = send(fd, answer, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 || (size_t)sent < length)
        return sent < 0 ? 0 : sent;
    pthread_mutex_lock(&lane->lock);
    bool is_handed_over = take_over(lane, fd, id, view);
    pthread_mutex_unlock(&lane->lock);
    return is_handed_over ? LANE_HANDED_OVER : sent;
}

bool lane_take_back(struct lane *lane, int fd, uint64_t id) {
    pthread_mutex_lock(&lane->lock);
    /* Before the wait: otherwise the thread might serve the next event of a busy connection first. */
    if (slot_of(lane, fd, id) != NULL)
        epoll_ctl(lane->epoll, EPOLL_CTL_DEL, fd, NULL);
    while (lane->serving == fd)
        pthread_cond_wait(&lane->served, &lane->lock);
    struct slot *slot = slot_of(lane, fd, id);
    if (slot != NULL)
        slot->id = 0;
    pthread_mutex_unlock(&lane->lock);
    return slot != NULL;
}

int lane_returned_fd(const struct lane *lane) { return lane->returned_event; }

struct returned *lane_next_returned(struct lane *lane) {
    pthread_mutex_lock(&lane->lock);
    struct returned *returned = lane->first_returned;
    if (returned != NULL && (lane->first_returned = returned->next) == NULL) {
        lane->last_returned = &lane->first_returned;
        eventfd_t count;
        eventfd_read(lane->returned_event, &count);
    }
    pthread_mutex_unlock(&lane->lock);
    return returned;
}

void lane_free_returned(struct returned *returned) { free(returned); }

/* ---- answers ---- */

void lane_know(struct lane *lane, const char *frame, size_t length, uint64_t topic, const char *head, size_t head_length,
               const char *tail, size_t tail_length, uint32_t header_length, uint64_t view) {
    struct query query = {.view = view};
    if (!cut_query((struct text){frame, length}, &query) || head_length + tail_length > MAX_ANSWER_BYTES)
        return;
    pthread_mutex_lock(&lane->lock);
    know_answer(lane->answers, &query, topic, (struct text){head, head_length}, (struct text){tail, tail_length},
                header_length);
    pthread_mutex_unlock(&lane->lock);
}

size_t lane_find(struct lane *lane, const char *frame, size_t length, char *at, size_t room, uint64_t view) {
    struct query query = {.view = view};
    if (!cut_query((struct text){frame, length}, &query))
        return 0;
    pthread_mutex_lock(&lane->lock);
    size_t written = write_answer(lane->answers, &query, at, room);
    pthread_mutex_unlock(&lane->lock);
    return written == SIZE_MAX ? 0 : written;
}

void lane_forget(struct lane *lane, const uint64_t *topics, size_t count) {
    pthread_mutex_lock(&lane->lock);
    forget_topics(lane->answers, topics, count);
    pthread_mutex_unlock(&lane->lock);
}

void lane_forget_all(struct lane *lane) {
    pthread_mutex_lock(&lane->lock);
    forget_all(lane->answers);
    pthread_mutex_unlock(&lane->lock);
}

/* ---- counters ---- */

/* The thread counts an answer after it has sent it. After this wait, every answer that a peer has read is counted. */
static void await_served(struct lane *lane) {
    uint64_t before = lane->times_served;
    while (lane->serving != NONE && lane->times_served == before)
        pthread_cond_wait(&lane->served, &lane->lock);
}

size_t lane_active(struct lane *lane, uint64_t *ids, size_t room) {
    size_t count = 0;
    pthread_mutex_lock(&lane->lock);
    await_served(lane);
    while (lane->first_active != NONE && count < room) {
        struct slot *slot = &lane->slots[lane->first_active];
        lane->first_active = slot->next_active;
        slot->is_active = false;
        if (slot->id != 0)
            ids[count++] = slot->id;
    }
    pthread_mutex_unlock(&lane->lock);
    return count;
}

void lane_counters(struct lane *lane, uint64_t *counters) {
    pthread_mutex_lock(&lane->lock);
    await_served(lane);
    memcpy(counters, lane->counts, (lane->bounds + 1) * sizeof *counters);
    counters[lane->bounds + 1] = lane->total_ns;
    counters[lane->bounds + 2] = known_bytes(lane->answers);
    pthread_mutex_unlock(&lane->lock);
}
