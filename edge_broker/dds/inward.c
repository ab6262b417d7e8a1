/* The shortcut of lone samples of deadline topics from a direct link to DDS: a batch that is the next
   one of its stream is written as soon as it is read, without the interpreter, whatever Python does
   meanwhile; it is accounted for in a later turn of the loop, and before anything in it that depends
   on it. Wires are read by the one thread that waits for them, here or in its turns. Called
   by shortcuts.py and bulk.c. */

#include "lone_batch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define MOST_AIMS 256
#define MOST_WIRES 64
#define MOST_CHUNK (64 * 1024)
#define MOST_READS 64
#define MOST_WRITTEN 256
#define MOST_NEWS 64
#define LONG_REST_NS 24000000
#define SHORT_REST_NS 500000
#define ENOUGH_NS 16000000

/* What follows is everybody's who holds this, for as long as a write takes; with the interpreter lock or
   without it, which must not be asked for within. */
static pthread_mutex_t aims = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
    blob stream;
    bool is_aimed;
    int32_t writer;
    uint64_t next;
} incoming;

static incoming *incomings[MOST_AIMS];

/* What was written and has not been asked for, first things first. */
static struct {
    const incoming *of;
    int32_t writer, code;
    uint64_t number;
    int64_t time, written_ns;
} written[MOST_WRITTEN];
static size_t written_count;
static int64_t written_ns; /* the one that was asked for last */

static int watched[MOST_WIRES]; /* wires that stand at the beginning of a frame; 0: none */
typedef struct {
    int wire;
    size_t size;
    int64_t at_ns;
} chunk;

/* What was read ahead, in order. */
static chunk reads[MOST_READS];
static size_t read_count, read_size;
static uint8_t read_bytes[MOST_CHUNK];
static volatile bool is_any_read;
/* What was read may wait for others: its answers would wait as long, and to account for samples one by
   one takes several times as long as for some together. The best moment is soon after one of them:
   later the next one comes. */
static int64_t rest_since_ns, rest_until_ns;

static incoming *incoming_of(const uint8_t *stream, size_t size)
{
    for (size_t at = 0; at < MOST_AIMS && incomings[at] != NULL; at++)
        if (incomings[at]->stream.size == size &&
            memcmp(incomings[at]->stream.bytes, stream, size) == 0)
            return incomings[at];
    return NULL;
}

/* Whether there is no hurry with a frame: it is in DDS, or is a copy of what is. */
static bool write_ahead(text frame)
{
    lone found;
    if (!read_frame(frame, &found) || !is_encoded(found.payload.at, found.uniform))
        return false;
    incoming *aim = incoming_of(found.stream.at, (size_t)(found.stream.end - found.stream.at));
    if (aim == NULL || !aim->is_aimed)
        return false;
    if (found.first < aim->next)
        return true;
    if (found.first > aim->next || written_count == MOST_WRITTEN)
        return false;
    container value = {(void *)(uintptr_t)found.payload.at, found.uniform};
    uint64_t time;
    memcpy(&time, found.times.at, sizeof time);
    size_t at = written_count++;
    written[at].of = aim;
    written[at].writer = aim->writer;
    written[at].number = aim->next;
    written[at].time = (int64_t)le64toh(time);
    written[at].code = dds.write[WRITE](aim->writer, &value, written[at].time);
    dds.flush(aim->writer);
    written[at].written_ns = clock_ns(CLOCK_REALTIME);
    aim->next++;
    aim->is_aimed = written[at].code == 0;
    return aim->is_aimed;
}

static bool is_watched(int wire)
{
    for (size_t at = 0; at < MOST_WIRES; at++)
        if (watched[at] == wire)
            return true;
    return false;
}

enum outcome { UNTOUCHED, READ, WRITTEN };

/* Reads a wire whose frames may be for readers here. */
static enum outcome receive(int wire)
{
    enum outcome outcome = UNTOUCHED;
    pthread_mutex_lock(&aims);
    uint8_t *into = read_bytes + read_size;
    ssize_t got = 0;
    if (incomings[0] != NULL && is_watched(wire) && read_count < MOST_READS)
        got = recv(wire, into, sizeof read_bytes - read_size, MSG_DONTWAIT);
    if (got > 0) {
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        if (read_count == 0)
            rest_since_ns = now;
        bool is_enough = now - rest_since_ns > ENOUGH_NS;
        rest_until_ns = is_enough ? now + SHORT_REST_NS : rest_since_ns + LONG_REST_NS;
        reads[read_count].wire = wire;
        reads[read_count].at_ns = clock_ns(CLOCK_REALTIME);
        reads[read_count++].size = (size_t)got;
        read_size += (size_t)got;
        is_any_read = true;
        text rest = {into, into + got}, frame;
        bool is_whole = true;
        while (is_whole && get_record(&rest, &frame))
            is_whole = write_ahead(frame);
        outcome = is_whole && rest.at == rest.end ? WRITTEN : READ;
    }
    pthread_mutex_unlock(&aims);
    return outcome;
}

static void strike(size_t at)
{
    written_count--;
    memmove(&written[at], &written[at + 1], (written_count - at) * sizeof written[0]);
}

bool was_written(int32_t writer, int64_t time, bool is_lone, int32_t *code)
{
    bool is_found = false;
    pthread_mutex_lock(&aims);
    for (size_t at = 0; is_lone && at < written_count && !is_found; at++)
        if (written[at].writer == writer && written[at].time == time) {
            *code = written[at].code;
            written_ns = written[at].written_ns;
            strike(at);
            is_found = true;
        }
    for (size_t at = 0; !is_found && at < MOST_AIMS && incomings[at] != NULL; at++)
        if (incomings[at]->writer == writer)
            incomings[at]->is_aimed = false;
    pthread_mutex_unlock(&aims);
    return is_found;
}

/* What was written of it before this number will not be asked for any more. A link that ends takes with
   it what was read and not accounted for; of a best-effort stream that does not come again. */
static void strike_before(const incoming *aim, uint64_t number)
{
    for (size_t at = written_count; at-- > 0;)
        if (written[at].of == aim && written[at].number < number)
            strike(at);
}

static bool is_unasked(const incoming *aim)
{
    for (size_t at = 0; at < written_count; at++)
        if (written[at].of == aim)
            return true;
    return false;
}

/* ------------------------------------------------------------ what Python calls */

PyDoc_STRVAR(has_news_doc,
             "has_news() -> whether something was taken or read since it was accounted for last");

static PyObject *has_news(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(is_any_taken || is_any_read);
}

PyDoc_STRVAR(read_doc,
             "read() -> [(descriptor, what was read from it, when (ns))] since the last call");

static PyObject *read_ahead(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    static chunk taken[MOST_READS]; /* to make objects may call anything: not while this is held */
    static uint8_t taken_bytes[MOST_CHUNK];
    pthread_mutex_lock(&aims);
    size_t count = read_count;
    memcpy(taken, reads, count * sizeof *reads);
    memcpy(taken_bytes, read_bytes, read_size);
    read_count = read_size = 0;
    is_any_read = false;
    pthread_mutex_unlock(&aims);
    PyObject *chunks = PyList_New((Py_ssize_t)count);
    const uint8_t *from = taken_bytes;
    for (size_t at = 0; chunks != NULL && at < count; at++) {
        PyObject *each = Py_BuildValue("(iy#L)", taken[at].wire, from, (Py_ssize_t)taken[at].size,
                                       (long long)taken[at].at_ns);
        from += taken[at].size;
        if (each == NULL)
            Py_CLEAR(chunks);
        else
            PyList_SET_ITEM(chunks, (Py_ssize_t)at, each);
    }
    return chunks;
}

PyDoc_STRVAR(written_at_doc,
             "written_at() -> when (ns) what was given to write() last had been written ahead, or 0;\n"
             "told once");

static PyObject *written_at(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    int64_t at = written_ns;
    written_ns = 0;
    return PyLong_FromLongLong(at);
}

PyDoc_STRVAR(aim_in_doc,
             "aim_in(stream, writer, next) -> whether lone batches that begin with `next`, and those\n"
             "that follow, will be written at once, or later ones are already");

static PyObject *aim_in(PyObject *self, PyObject *args)
{
    (void)self;
    int writer;
    unsigned long long next;
    Py_buffer stream;
    if (!PyArg_ParseTuple(args, "y*iK", &stream, &writer, &next))
        return NULL;
    pthread_mutex_lock(&aims);
    incoming *aim = incoming_of(stream.buf, (size_t)stream.len);
    if (aim != NULL)
        strike_before(aim, next);
    for (size_t at = 0; aim == NULL && at < MOST_AIMS; at++) {
        if (incomings[at] == NULL) {
            aim = incomings[at] = calloc(1, sizeof *aim);
            break;
        }
        if (!incomings[at]->is_aimed && !is_unasked(incomings[at]))
            aim = incomings[at];
    }
    bool is_aimed = aim != NULL && copy(&aim->stream, &stream);
    if (is_aimed && !is_unasked(aim)) {
        aim->is_aimed = true;
        aim->writer = writer;
        aim->next = next;
    }
    pthread_mutex_unlock(&aims);
    PyBuffer_Release(&stream);
    return PyBool_FromLong(is_aimed);
}

static PyObject *settle(PyObject *stream, bool is_over)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(stream, &bytes, &size) < 0)
        return NULL;
    pthread_mutex_lock(&aims);
    incoming *aim = incoming_of((uint8_t *)bytes, (size_t)size);
    if (aim != NULL)
        aim->is_aimed = false;
    if (is_over && aim != NULL)
        strike_before(aim, UINT64_MAX);
    bool is_any = aim != NULL && is_unasked(aim);
    pthread_mutex_unlock(&aims);
    return PyBool_FromLong(is_any);
}

PyDoc_STRVAR(lower_in_doc,
             "lower_in(stream) -> whether something was written that is not accounted for; from now\n"
             "on nothing is");

static PyObject *lower_in(PyObject *self, PyObject *stream)
{
    (void)self;
    return settle(stream, false);
}

PyDoc_STRVAR(end_in_doc, "end_in(stream): nothing of it is accounted for any more");

static PyObject *end_in(PyObject *self, PyObject *stream)
{
    (void)self;
    return settle(stream, true);
}

PyDoc_STRVAR(watch_doc, "watch(wire, is_at_boundary) -> whether it may be read ahead of turns");

static PyObject *watch(PyObject *self, PyObject *args)
{
    (void)self;
    int wire, is_at_boundary;
    if (!PyArg_ParseTuple(args, "ip", &wire, &is_at_boundary))
        return NULL;
    pthread_mutex_lock(&aims);
    int *place = NULL;
    for (size_t at = 0; at < MOST_WIRES; at++)
        if (watched[at] == wire || (watched[at] == 0 && place == NULL))
            place = &watched[at];
    if (place != NULL)
        *place = is_at_boundary ? wire : *place == wire ? 0 : *place;
    pthread_mutex_unlock(&aims);
    return PyBool_FromLong(place != NULL && is_at_boundary);
}

/* As epoll_wait, but for so many ns; for less than 0: as long as it takes. */
static int wait_for_news(int epoll, struct epoll_event *ready, int64_t at_most_ns)
{
    if (at_most_ns < 0)
        return epoll_wait(epoll, ready, MOST_NEWS, -1);
    struct timespec rest = {at_most_ns / 1000000000, at_most_ns % 1000000000};
    struct pollfd any = {epoll, POLLIN, 0};
    int found = ppoll(&any, 1, &rest, NULL);
    return found == 1 ? epoll_wait(epoll, ready, MOST_NEWS, 0) : found;
}

enum { RESTED = -2 };

/* Returns as epoll_wait when there is something for Python to do: news, or (0) to account for what was
   done here; RESTED: to do so without hurry, while this goes on. */
static int await_news(int epoll, struct epoll_event *ready, int64_t at_most_ns)
{
    for (;;) {
        bool is_resting = is_any_read;
        int64_t wait_ns = at_most_ns;
        if (is_resting)
            wait_ns = rest_until_ns - clock_ns(CLOCK_MONOTONIC);
        if (is_resting && wait_ns <= 0) {
            rest_until_ns += LONG_REST_NS - wait_ns; /* unless that has been done by then */
            return RESTED;
        }
        int found = wait_for_news(epoll, ready, wait_ns);
        if (found == 0 && is_resting)
            continue; /* it has rested, or has been accounted for by another turn */
        if (found <= 0)
            return found;
        int left = 0;
        bool is_hurried = false;
        for (int at = 0; at < found; at++) {
            enum outcome outcome = is_hurried ? UNTOUCHED : receive(ready[at].data.fd);
            is_hurried = is_hurried || outcome == READ;
            if (outcome == UNTOUCHED)
                ready[left++] = ready[at];
        }
        if (left > 0 || is_hurried)
            return left;
    }
}

PyDoc_STRVAR(await_wires_doc,
             "await_wires(epoll, timeout ms) -> descriptors that have news, but for those that were\n"
             "read meanwhile; True: there is only something to account for, without hurry; None: nor\n"
             "is there that. Blocks without the interpreter lock");

static PyObject *await_wires(PyObject *self, PyObject *args)
{
    (void)self;
    int epoll, timeout_ms, found;
    struct epoll_event ready[MOST_NEWS];
    if (!PyArg_ParseTuple(args, "ii", &epoll, &timeout_ms))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = await_news(epoll, ready, timeout_ms < 0 ? -1 : timeout_ms * INT64_C(1000000));
    Py_END_ALLOW_THREADS
    if (found == RESTED)
        Py_RETURN_TRUE;
    if (found <= 0 && !is_any_read)
        Py_RETURN_NONE;
    PyObject *list = PyList_New(found > 0 ? found : 0);
    for (int at = 0; list != NULL && at < found; at++) {
        PyObject *wire = PyLong_FromLong(ready[at].data.fd);
        if (wire == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, at, wire);
    }
    return list;
}

PyMethodDef inward_methods[] = {
    {"has_news", has_news, METH_NOARGS, has_news_doc},
    {"read", read_ahead, METH_NOARGS, read_doc},
    {"written_at", written_at, METH_NOARGS, written_at_doc},
    {"aim_in", aim_in, METH_VARARGS, aim_in_doc},
    {"lower_in", lower_in, METH_O, lower_in_doc},
    {"end_in", end_in, METH_O, end_in_doc},
    {"watch", watch, METH_VARARGS, watch_doc},
    {"await_wires", await_wires, METH_VARARGS, await_wires_doc},
    {NULL, NULL, 0, NULL},
};
