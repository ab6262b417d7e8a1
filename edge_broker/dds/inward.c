/* The shortcut of lone samples of deadline topics from a direct link to DDS: a batch that is the next
   one of its stream is written as soon as it is read, without the interpreter, and accounted for as
   the first thing of the next turn of the loop. Only while no turn is under way (the gate is open):
   Python reads and writes the same wires and writers. Called by shortcuts.py and bulk.c. */

#include "lone_batch.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define MOST_AIMS 256
#define MOST_WIRES 64
#define MOST_CHUNK (64 * 1024)
#define MOST_READS 32
#define MOST_NEWS 64

/* Held by whoever has the loop's turn, and here for the length of one read. */
static sem_t gate;

void close_inward(void)
{
    sem_init(&gate, 0, 0);
}

#define PATIENCE_NS 5000000

/* Turns are short: one that is under way is waited for, though not for long. */
static bool enter(void)
{
    if (sem_trywait(&gate) == 0)
        return true;
    int64_t until = clock_ns(CLOCK_REALTIME) + PATIENCE_NS;
    struct timespec end = {until / 1000000000, until % 1000000000};
    return sem_timedwait(&gate, &end) == 0;
}

typedef struct {
    blob stream;
    bool is_aimed, is_written;
    int32_t writer, code;
    uint64_t next;
    int64_t time, written_ns;
} incoming;

static incoming *incomings[MOST_AIMS];
static size_t unread;      /* of what was written ahead */
static int64_t written_ns; /* the one that was asked for last */

static int watched[MOST_WIRES]; /* wires that stand at the beginning of a frame; 0: none */
/* What was read ahead, in order. */
static struct {
    int wire;
    size_t size;
} reads[MOST_READS];
static size_t read_count, read_size;
static uint8_t read_bytes[MOST_CHUNK];

static incoming *incoming_of(const uint8_t *stream, size_t size)
{
    for (size_t at = 0; at < MOST_AIMS && incomings[at] != NULL; at++)
        if (incomings[at]->stream.size == size &&
            memcmp(incomings[at]->stream.bytes, stream, size) == 0)
            return incomings[at];
    return NULL;
}

static bool write_ahead(text frame)
{
    lone found;
    if (!read_frame(frame, &found))
        return false;
    incoming *aim = incoming_of(found.stream.at, (size_t)(found.stream.end - found.stream.at));
    if (aim == NULL || !aim->is_aimed || aim->next != found.first)
        return false;
    container value = {(void *)(uintptr_t)found.payload.at, found.uniform};
    uint64_t time;
    memcpy(&time, found.times.at, sizeof time);
    aim->is_aimed = false;
    aim->time = (int64_t)le64toh(time);
    aim->code = dds.write[WRITE](aim->writer, &value, aim->time);
    dds.flush(aim->writer);
    aim->written_ns = clock_ns(CLOCK_REALTIME);
    aim->is_written = true;
    unread++;
    return true;
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
    if (!is_watched(wire) || incomings[0] == NULL || !enter())
        return outcome;
    uint8_t *into = read_bytes + read_size;
    ssize_t got = 0;
    if (is_watched(wire) && read_count < MOST_READS)
        got = recv(wire, into, sizeof read_bytes - read_size, MSG_DONTWAIT);
    if (got > 0) {
        reads[read_count].wire = wire;
        reads[read_count++].size = (size_t)got;
        read_size += (size_t)got;
        text rest = {into, into + got};
        bool is_whole = true;
        while (is_whole && rest.end - rest.at > LENGTH_BYTES) {
            uint32_t size;
            memcpy(&size, rest.at, sizeof size);
            size = le32toh(size);
            rest.at += LENGTH_BYTES;
            is_whole = size <= (uint64_t)(rest.end - rest.at) &&
                       write_ahead((text){rest.at, rest.at + size});
            rest.at += is_whole ? size : 0;
        }
        outcome = is_whole && rest.at == rest.end ? WRITTEN : READ;
    }
    sem_post(&gate);
    return outcome;
}

bool was_written(int32_t writer, int64_t time, int32_t *code)
{
    for (size_t at = 0; unread && at < MOST_AIMS && incomings[at] != NULL; at++) {
        incoming *aim = incomings[at];
        if (aim->is_written && aim->writer == writer && aim->time == time) {
            aim->is_written = false;
            unread--;
            *code = aim->code;
            written_ns = aim->written_ns;
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------ what Python calls */

PyDoc_STRVAR(close_gate_doc, "close_gate() -> whether something was read since it was opened");

static PyObject *close_gate(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    while (sem_wait(&gate) != 0 && errno == EINTR)
        continue;
    return PyBool_FromLong(read_count > 0);
}

PyDoc_STRVAR(open_gate_doc, "open_gate(): no turn is under way");

static PyObject *open_gate(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    sem_post(&gate);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(read_doc, "read() -> [(descriptor, what was read from it)] since the last call");

static PyObject *read_ahead(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *chunks = PyList_New((Py_ssize_t)read_count);
    const uint8_t *from = read_bytes;
    for (size_t at = 0; chunks != NULL && at < read_count; at++) {
        PyObject *chunk = Py_BuildValue("(iy#)", reads[at].wire, from,
                                        (Py_ssize_t)reads[at].size);
        from += reads[at].size;
        if (chunk == NULL)
            Py_CLEAR(chunks);
        else
            PyList_SET_ITEM(chunks, (Py_ssize_t)at, chunk);
    }
    read_count = read_size = 0;
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
             "aim_in(stream, writer, next) -> whether a lone batch that begins with `next` will be\n"
             "written at once; next 0: none");

static PyObject *aim_in(PyObject *self, PyObject *args)
{
    (void)self;
    int writer;
    unsigned long long next;
    Py_buffer stream;
    if (!PyArg_ParseTuple(args, "y*iK", &stream, &writer, &next))
        return NULL;
    incoming *aim = incoming_of(stream.buf, (size_t)stream.len);
    for (size_t at = 0; next && aim == NULL && at < MOST_AIMS; at++) {
        if (incomings[at] == NULL) {
            aim = incomings[at] = calloc(1, sizeof *aim);
            break;
        }
        if (!incomings[at]->is_aimed && !incomings[at]->is_written)
            aim = incomings[at];
    }
    bool is_aimed = aim != NULL && next && !aim->is_written && copy(&aim->stream, &stream);
    if (aim != NULL)
        aim->is_aimed = is_aimed;
    if (is_aimed) {
        aim->writer = writer;
        aim->next = next;
    }
    PyBuffer_Release(&stream);
    return PyBool_FromLong(is_aimed);
}

PyDoc_STRVAR(end_in_doc, "end_in(stream): nothing of it is accounted for any more");

static PyObject *end_in(PyObject *self, PyObject *stream)
{
    (void)self;
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(stream, &bytes, &size) < 0)
        return NULL;
    incoming *aim = incoming_of((uint8_t *)bytes, (size_t)size);
    if (aim != NULL) {
        unread -= aim->is_written;
        aim->is_aimed = aim->is_written = false;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(watch_doc, "watch(wire, is_at_boundary) -> whether it may be read ahead of turns");

static PyObject *watch(PyObject *self, PyObject *args)
{
    (void)self;
    int wire, is_at_boundary;
    if (!PyArg_ParseTuple(args, "ip", &wire, &is_at_boundary))
        return NULL;
    int *place = NULL;
    for (size_t at = 0; at < MOST_WIRES; at++)
        if (watched[at] == wire || (watched[at] == 0 && place == NULL))
            place = &watched[at];
    if (place != NULL)
        *place = is_at_boundary ? wire : *place == wire ? 0 : *place;
    return PyBool_FromLong(place != NULL && is_at_boundary);
}

PyDoc_STRVAR(await_wires_doc,
             "await_wires(epoll, timeout ms) -> descriptors that have news, but for one that was\n"
             "read meanwhile. Blocks without the interpreter lock");

static PyObject *await_wires(PyObject *self, PyObject *args)
{
    (void)self;
    int epoll, timeout_ms, found;
    struct epoll_event ready[MOST_NEWS];
    if (!PyArg_ParseTuple(args, "ii", &epoll, &timeout_ms))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = epoll_wait(epoll, ready, MOST_NEWS, timeout_ms);
    int64_t until = 0;
    while (found == 1) {
        enum outcome outcome = receive(ready[0].data.fd);
        if (outcome == UNTOUCHED)
            break;
        found = 0;
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        until = until ? until : now + REST_NS;
        struct timespec rest = {0, until - now};
        struct pollfd any = {epoll, POLLIN, 0};
        if (outcome == WRITTEN && until > now && ppoll(&any, 1, &rest, NULL) == 1)
            found = epoll_wait(epoll, ready, MOST_NEWS, 0);
    }
    Py_END_ALLOW_THREADS
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
    {"close_gate", close_gate, METH_NOARGS, close_gate_doc},
    {"open_gate", open_gate, METH_NOARGS, open_gate_doc},
    {"read", read_ahead, METH_NOARGS, read_doc},
    {"written_at", written_at, METH_NOARGS, written_at_doc},
    {"aim_in", aim_in, METH_VARARGS, aim_in_doc},
    {"end_in", end_in, METH_O, end_in_doc},
    {"watch", watch, METH_VARARGS, watch_doc},
    {"await_wires", await_wires, METH_VARARGS, await_wires_doc},
    {NULL, NULL, 0, NULL},
};
