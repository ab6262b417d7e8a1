/* The shortcut of lone samples of deadline topics between DDS and a direct link: what the edge would
   do with the next one is done here at once, without the interpreter, and accounted for afterwards,
   as the first thing of the next turn of the loop. Python aims: it says what may be done, and is
   asked nothing while no turn is under way (the gate is open). Called by shortcuts.py and bulk.c. */

#include "bulk.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define ANY_STATE 0x7F
#define MOST_AIMS 256
#define MOST_WIRES 64
#define MOST_HEAD 512
#define MOST_SAMPLE (8 * 1024)
#define MOST_RECORD (MOST_SAMPLE + 2 * MOST_HEAD)
#define MOST_CHUNK (64 * 1024)
#define MOST_READS 32
#define MOST_NEWS 64
#define LENGTH_BYTES 4
#define HEADER_BYTES 8
#define PROTOCOL_VERSION 1

/* Held by whoever has the loop's turn, and here for the length of one shot. */
static sem_t gate;

void close_shortcut(void)
{
    sem_init(&gate, 0, 0);
}

#define PATIENCE_NS 5000000

static int64_t clock_ns(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* Turns are short: one that is under way is waited for, though not for long. */
static bool enter(bool may_wait)
{
    if (sem_trywait(&gate) == 0)
        return true;
    if (!may_wait)
        return false;
    int64_t until = clock_ns(CLOCK_REALTIME) + PATIENCE_NS;
    struct timespec end = {until / 1000000000, until % 1000000000};
    return sem_timedwait(&gate, &end) == 0;
}

/* ------------------------------------------------------------ the layout of a lone batch */

typedef struct {
    uint8_t bytes[MOST_HEAD];
    size_t size;
} blob;

/* Fields of proto/tunnel.proto as they are tagged on the wire. */
enum { NUMBER = 0, OCTETS = 2 };
#define TAG(field, kind) ((field) << 3 | (kind))
#define TO TAG(1, OCTETS)
#define BATCH TAG(23, OCTETS)
#define STREAM TAG(1, OCTETS)
#define FIRST TAG(2, NUMBER)
#define COUNT TAG(3, NUMBER)
#define TIMES TAG(4, OCTETS)
#define UNIFORM TAG(6, NUMBER)
#define SENT TAG(8, NUMBER)

static uint8_t *put(uint8_t *at, uint64_t value)
{
    for (; value > 0x7F; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_octets(uint8_t *at, const void *octets, size_t size)
{
    memcpy(at, octets, size);
    return at + size;
}

static void put_size(uint8_t *at, size_t size)
{
    uint32_t little = htole32((uint32_t)size);
    memcpy(at, &little, sizeof little);
}

/* One sample as a record of a wire; returns its size. `to` are whole fields, `stream` is the value. */
static size_t encode(uint8_t *record, const blob *to, const blob *stream, uint64_t first,
                     const sample *what, int64_t sent_ns)
{
    uint8_t batch[2 * MOST_HEAD], *end = batch;
    uint64_t time = htole64((uint64_t)what->info.source_timestamp);
    end = put(end, STREAM);
    end = put(end, stream->size);
    end = put_octets(end, stream->bytes, stream->size);
    end = put(put(end, FIRST), first);
    end = put(put(end, COUNT), 1);
    end = put(put(end, TIMES), sizeof time);
    end = put_octets(end, &time, sizeof time);
    if (what->part.iov_len)
        end = put(put(end, UNIFORM), what->part.iov_len);
    end = put(put(end, SENT), (uint64_t)sent_ns);
    size_t batch_size = (size_t)(end - batch);

    uint8_t *head = record + LENGTH_BYTES, *envelope = head + HEADER_BYTES;
    end = put_octets(envelope, to->bytes, to->size);
    end = put(put(end, BATCH), batch_size);
    end = put_octets(end, batch, batch_size);
    memset(head, 0, HEADER_BYTES);
    head[0] = PROTOCOL_VERSION;
    put_size(head + 4, (size_t)(end - envelope));
    end = put_octets(end, what->part.iov_base, what->part.iov_len);
    put_size(record, (size_t)(end - head));
    return (size_t)(end - record);
}

typedef struct {
    const uint8_t *at, *end;
} text;

static bool get(text *from, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; from->at < from->end && shift < 64; shift += 7) {
        uint8_t next = *from->at++;
        *value |= (uint64_t)(next & 0x7F) << shift;
        if (next < 0x80)
            return true;
    }
    return false;
}

static bool get_octets(text *from, text *value)
{
    uint64_t size;
    if (!get(from, &size) || size > (uint64_t)(from->end - from->at))
        return false;
    *value = (text){from->at, from->at + size};
    from->at += size;
    return true;
}

typedef struct {
    text stream, times, payload;
    uint64_t first, count, uniform;
} lone;

/* False: it is something else, or says more than a lone batch does. */
static bool read_batch(text batch, lone *found)
{
    uint64_t tag, unused;
    while (batch.at < batch.end) {
        if (!get(&batch, &tag))
            return false;
        bool is_sound;
        switch (tag) {
        case STREAM: is_sound = get_octets(&batch, &found->stream); break;
        case TIMES: is_sound = get_octets(&batch, &found->times); break;
        case FIRST: is_sound = get(&batch, &found->first); break;
        case COUNT: is_sound = get(&batch, &found->count); break;
        case UNIFORM: is_sound = get(&batch, &found->uniform); break;
        case SENT: is_sound = get(&batch, &unused); break;
        default: is_sound = false;
        }
        if (!is_sound)
            return false;
    }
    return found->count == 1 && found->times.end - found->times.at == sizeof(int64_t) &&
           found->uniform == (uint64_t)(found->payload.end - found->payload.at);
}

static bool read_frame(text frame, lone *found)
{
    static const uint8_t start[] = {PROTOCOL_VERSION, 0, 0, 0};
    uint32_t head;
    if (frame.end - frame.at < HEADER_BYTES || memcmp(frame.at, start, sizeof start) != 0)
        return false;
    memcpy(&head, frame.at + 4, sizeof head);
    head = le32toh(head);
    frame.at += HEADER_BYTES;
    if (head > (uint64_t)(frame.end - frame.at))
        return false;
    memset(found, 0, sizeof *found);
    found->payload = (text){frame.at + head, frame.end};
    text envelope = {frame.at, frame.at + head}, batch, unused;
    uint64_t tag;
    while (envelope.at < envelope.end && get(&envelope, &tag)) {
        if (tag == TO) {
            if (!get_octets(&envelope, &unused))
                return false;
        } else {
            return tag == BATCH && get_octets(&envelope, &batch) &&
                   envelope.at == envelope.end && read_batch(batch, found);
        }
    }
    return false;
}

/* ------------------------------------------------------------ from DDS to a wire */

typedef struct {
    int32_t reader;
    bool is_aimed, is_taken, is_all, is_listening;
    int wire;
    uint64_t writer, first;
    int64_t until_ns, sent_ns;
    ssize_t sent;
    blob to, stream;
    store samples;
} outgoing;

static outgoing *outgoings[MOST_AIMS];

static outgoing *outgoing_of(int32_t reader)
{
    for (size_t at = 0; at < MOST_AIMS && outgoings[at] != NULL; at++)
        if (outgoings[at]->reader == reader)
            return outgoings[at];
    return NULL;
}

/* Something was done that is not accounted for yet. */
static volatile bool has_news;
/* What was taken from since, first things first: a path confirms in the order things were sent. */
static outgoing *taken_from[MOST_AIMS];
static size_t taken_count;

/* Takes all the reader has if that is one sample, and more only if it is more; within the gate. */
static enum shot send_lone(outgoing *aim)
{
    aim->is_aimed = false;
    if (monotonic_ns() >= aim->until_ns)
        return MISSED;
    fill(&aim->samples, aim->reader, 2, ANY_STATE);
    if (aim->samples.count == 0)
        return MISSED;
    aim->is_taken = has_news = true;
    taken_from[taken_count++] = aim;
    aim->sent = 0;
    const sample *only = aim->samples.samples;
    if (aim->samples.count > 1)
        return MISSED;
    if (!is_plain(&aim->samples) || only->info.publication_handle != aim->writer ||
        only->part.iov_len > MOST_SAMPLE)
        return SOON;
    uint8_t record[MOST_RECORD];
    aim->sent_ns = clock_ns(CLOCK_REALTIME);
    size_t size = encode(record, &aim->to, &aim->stream, aim->first, only, aim->sent_ns);
    aim->sent = send(aim->wire, record, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return aim->is_all && aim->sent == (ssize_t)size ? REST : SOON;
}

enum shot shoot(int32_t reader)
{
    enum shot outcome = MISSED;
    outgoing *aim = outgoing_of(reader);
    if (aim == NULL || !aim->is_aimed || !enter(true))
        return outcome;
    if (aim->reader == reader && aim->is_aimed)
        outcome = send_lone(aim);
    sem_post(&gate);
    return outcome;
}

/* Wakes the waiting thread where nothing else does: to take is to make DDS forget the news. */
static int32_t alarm_condition;

/* In the thread of DDS that has just received it: one wake less on the way. What was sent is
   accounted for in the next turn, which its confirmation brings or the loop's next tick: a turn of
   its own would take the processor from those who are to get the sample. If this is not the moment
   to send the waiting thread tries again. */
static void on_data(int32_t reader, void *unused)
{
    (void)unused;
    outgoing *aim = outgoing_of(reader);
    if (aim == NULL || !aim->is_aimed || !enter(false))
        return;
    bool is_alarming = false;
    if (aim->reader == reader && aim->is_aimed)
        is_alarming = send_lone(aim) != REST && aim->is_taken;
    sem_post(&gate);
    if (is_alarming)
        dds.set_guard(alarm_condition, true);
}

bool is_alarm(int32_t condition)
{
    if (condition != alarm_condition)
        return false;
    dds.set_guard(condition, false);
    return true;
}

static void listen_to(outgoing *aim)
{
    static void *listener;
    if (listener == NULL && (listener = dds.create_listener(NULL)) != NULL)
        dds.on_data(listener, on_data, NULL, false);
    if (!aim->is_listening && alarm_condition && listener != NULL)
        aim->is_listening = dds.set_listener(aim->reader, listener) == 0;
}

store *shot(int32_t reader)
{
    outgoing *aim = outgoing_of(reader);
    if (aim == NULL || !aim->is_taken)
        return NULL;
    aim->is_taken = false;
    return &aim->samples;
}

/* ------------------------------------------------------------ from a wire to DDS */

typedef struct {
    blob stream;
    bool is_aimed, is_written;
    int32_t writer, code;
    uint64_t next;
    int64_t time;
} incoming;

static incoming *incomings[MOST_AIMS];
static size_t unread; /* of what was written ahead */

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
    if (!is_watched(wire) || incomings[0] == NULL || !enter(true))
        return outcome;
    uint8_t *into = read_bytes + read_size;
    ssize_t got = 0;
    if (is_watched(wire) && read_count < MOST_READS)
        got = recv(wire, into, sizeof read_bytes - read_size, MSG_DONTWAIT);
    if (got > 0) {
        reads[read_count].wire = wire;
        reads[read_count++].size = (size_t)got;
        read_size += (size_t)got;
        has_news = true;
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
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------ what Python calls */

PyDoc_STRVAR(close_gate_doc, "close_gate() -> whether something was done since it was opened");

static PyObject *close_gate(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    while (sem_wait(&gate) != 0 && errno == EINTR)
        continue;
    return PyBool_FromLong(has_news);
}

PyDoc_STRVAR(open_gate_doc, "open_gate(): no turn is under way");

static PyObject *open_gate(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    sem_post(&gate);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(wake_by_doc, "wake_by(guard condition): it is attached to the waitset");

static PyObject *wake_by(PyObject *self, PyObject *condition)
{
    (void)self;
    long which = PyLong_AsLong(condition);
    if (PyErr_Occurred())
        return NULL;
    alarm_condition = (int32_t)which;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(news_doc, "news() -> (readers taken from, [(descriptor, what was read)])");

static PyObject *news(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    has_news = false;
    PyObject *readers = PyList_New(0);
    for (size_t at = 0; readers != NULL && at < taken_count; at++) {
        if (!taken_from[at]->is_taken)
            continue;
        PyObject *reader = PyLong_FromLong(taken_from[at]->reader);
        if (reader == NULL || PyList_Append(readers, reader) < 0)
            Py_CLEAR(readers);
        Py_XDECREF(reader);
    }
    taken_count = 0;
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
    return Py_BuildValue("(NN)", readers, chunks);
}

static bool copy(blob *into, const Py_buffer *from)
{
    if (from->len > MOST_HEAD / 2)
        return false;
    memcpy(into->bytes, from->buf, (size_t)from->len);
    into->size = (size_t)from->len;
    return true;
}

PyDoc_STRVAR(aim_out_doc,
             "aim_out(reader, wire, writer, to, stream, first, until monotonic ns, is all) ->\n"
             "whether its next sample will be sent at once, if it is that writer's and comes\n"
             "until then; all: it goes nowhere else");

static PyObject *aim_out(PyObject *self, PyObject *args)
{
    (void)self;
    int reader, wire, is_all;
    unsigned long long writer, first;
    long long until_ns;
    Py_buffer to, stream;
    if (!PyArg_ParseTuple(args, "iiKy*y*KLp", &reader, &wire, &writer, &to, &stream, &first,
                          &until_ns, &is_all))
        return NULL;
    outgoing *aim = outgoing_of(reader);
    for (size_t at = 0; aim == NULL && at < MOST_AIMS; at++) {
        if (outgoings[at] == NULL) {
            aim = outgoings[at] = calloc(1, sizeof *aim);
            break;
        }
        if (outgoings[at]->reader == 0)
            aim = outgoings[at];
    }
    bool is_aimed = aim != NULL && !aim->is_taken && copy(&aim->to, &to) &&
                    copy(&aim->stream, &stream);
    if (is_aimed) {
        aim->reader = reader;
        aim->wire = wire;
        aim->writer = writer;
        aim->first = first;
        aim->until_ns = until_ns;
        aim->is_all = is_all;
        listen_to(aim);
        aim->is_aimed = true;
        aim->sent = 0;
    }
    PyBuffer_Release(&to);
    PyBuffer_Release(&stream);
    return PyBool_FromLong(is_aimed);
}

PyDoc_STRVAR(sent_doc,
             "sent(reader) -> (ns, bytes) when its last sample, taken now, was sent before, with\n"
             "as many bytes as the wire took; else None. Told once; nothing more is sent");

static PyObject *sent(PyObject *self, PyObject *reader)
{
    (void)self;
    long which = PyLong_AsLong(reader);
    if (PyErr_Occurred())
        return NULL;
    outgoing *aim = outgoing_of((int32_t)which);
    if (aim == NULL)
        Py_RETURN_NONE;
    aim->is_aimed = false;
    ssize_t bytes = aim->sent;
    aim->sent = 0;
    if (bytes <= 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(Ln)", (long long)aim->sent_ns, (Py_ssize_t)bytes);
}

PyDoc_STRVAR(forget_doc, "forget(reader): it is about to be deleted");

static PyObject *forget(PyObject *self, PyObject *reader)
{
    (void)self;
    long which = PyLong_AsLong(reader);
    if (PyErr_Occurred())
        return NULL;
    outgoing *aim = outgoing_of((int32_t)which);
    if (aim != NULL) {
        let_go(&aim->samples);
        aim->is_aimed = aim->is_taken = aim->is_listening = false;
        aim->reader = 0;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(lower_doc, "lower(wire): nothing is sent on it ahead; 0: on none");

static PyObject *lower(PyObject *self, PyObject *wire)
{
    (void)self;
    long which = PyLong_AsLong(wire);
    if (PyErr_Occurred())
        return NULL;
    for (size_t at = 0; at < MOST_AIMS && outgoings[at] != NULL; at++)
        if (which == 0 || outgoings[at]->wire == which)
            outgoings[at]->is_aimed = false;
    Py_RETURN_NONE;
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
        int64_t now = monotonic_ns();
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

PyMethodDef shortcut_methods[] = {
    {"close_gate", close_gate, METH_NOARGS, close_gate_doc},
    {"open_gate", open_gate, METH_NOARGS, open_gate_doc},
    {"wake_by", wake_by, METH_O, wake_by_doc},
    {"news", news, METH_NOARGS, news_doc},
    {"aim_out", aim_out, METH_VARARGS, aim_out_doc},
    {"sent", sent, METH_O, sent_doc},
    {"forget", forget, METH_O, forget_doc},
    {"lower", lower, METH_O, lower_doc},
    {"aim_in", aim_in, METH_VARARGS, aim_in_doc},
    {"end_in", end_in, METH_O, end_in_doc},
    {"watch", watch, METH_VARARGS, watch_doc},
    {"await_wires", await_wires, METH_VARARGS, await_wires_doc},
    {NULL, NULL, 0, NULL},
};
