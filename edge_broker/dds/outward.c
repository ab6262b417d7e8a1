/* The shortcut of lone samples from DDS to express links. Python aims: it says what may be done with
   the next samples of a reader. Who receives them in DDS does it at once, without the
   interpreter, whatever Python does meanwhile; it is accounted for as the first thing of the
   next turn of the loop, and before anything in this one that depends on it. Called by shortcuts.py
   and bulk.c. */

#include "lone_batch.h"

#include "../../gateway/tunnel/rest.h"

#define ANY_STATE 0x7F
#define MOST_AIMS 256
#define MOST_WAYS 2
#define MOST_WIRES 256
/* Taken from one reader, or from all, and not accounted for yet. What comes faster than that travels
   better together: to account for samples one by one takes several times as long. */
#define MOST_TAKEN 32
#define MOST_TAKEN_OF_ALL 64
/* Answers come sooner if any do. */
#define LATE_NS 25000000
/* Nobody aims for longer. */
#define AIMED_NS 2000000000

int64_t clock_ns(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What follows is everybody's who holds this, for some microseconds: threads of DDS, and Python, with
   its interpreter lock, which must not be asked for within. Wires aimed at are written on so, too. */
static pthread_mutex_t aims = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
    int wire;
    blob to;
} way;

typedef struct {
    sample samples[2]; /* one, if it was sent */
    size_t count;
    int64_t sent_ns;
    unsigned ways; /* it went, a bit for each */
} shot_taken;

typedef struct {
    int32_t reader; /* 0: nobody's */
    bool is_aimed, is_listed, is_all, is_timed, is_listening;
    uint64_t writer, next, end; /* the next one's number, and the first that is not to be sent */
    int64_t until_ns;
    int64_t overdue_ns; /* nothing is sent while what was is not accounted for after so long */
    blob stream;
    way ways[MOST_WAYS];
    size_t way_count;
    shot_taken taken[MOST_TAKEN]; /* in a circle */
    size_t oldest, taken_count;
} outgoing;

static outgoing *outgoings[MOST_AIMS];

/* What was taken from and is not accounted for, first things first. */
static outgoing *taken_from[MOST_AIMS];
static size_t listed_count, taken_of_all;
static int64_t last_shot_ns;

/* When an answer to what went over a wire is due, by CLOCK_REALTIME. Nothing that has to be in time goes ahead
   over it afterwards. */
static struct {
    int wire; /* 0: no more of them */
    int64_t at_ns;
} due[MOST_WIRES];
volatile bool is_any_taken;

static outgoing *outgoing_of(int32_t reader)
{
    for (size_t at = 0; at < MOST_AIMS && outgoings[at] != NULL; at++)
        if (outgoings[at]->reader == reader)
            return outgoings[at];
    return NULL;
}

static void strike_off(outgoing *aim)
{
    size_t kept = 0;
    for (size_t at = 0; at < listed_count; at++)
        if (taken_from[at] != aim)
            taken_from[kept++] = taken_from[at];
    listed_count = kept;
    aim->is_listed = false;
}

static void lower_wire(int wire)
{
    for (size_t at = 0; at < MOST_AIMS && outgoings[at] != NULL; at++)
        for (size_t way = 0; way < outgoings[at]->way_count; way++)
            if (wire == 0 || outgoings[at]->ways[way].wire == wire)
                outgoings[at]->is_aimed = false;
}

/* Accounting comes with the answer to what was sent: where none comes, somebody has to look. */
static bool is_overdue(const outgoing *aim)
{
    int64_t now = clock_ns(CLOCK_REALTIME);
    for (size_t way = 0; aim->is_timed && way < aim->way_count; way++)
        for (size_t at = 0; at < MOST_WIRES && due[at].wire; at++)
            if (due[at].wire == aim->ways[way].wire && now > due[at].at_ns)
                return true;
    return aim->taken_count > 0 && now - aim->taken[aim->oldest].sent_ns > aim->overdue_ns;
}

/* Takes all the reader has if that is one sample, and more only if it is more. As long as everything is
   as it was aimed for so are the next ones. */
static enum shot send_lone(outgoing *aim)
{
    bool may_go = aim->next < aim->end && aim->taken_count < MOST_TAKEN &&
                  taken_of_all < MOST_TAKEN_OF_ALL;
    aim->is_aimed = false;
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    if (!may_go || is_overdue(aim) || now >= aim->until_ns)
        return MISSED;
    last_shot_ns = now;
    shot_taken *shot = &aim->taken[(aim->oldest + aim->taken_count) % MOST_TAKEN];
    store found = {shot->samples, 0, sizeof shot->samples / sizeof *shot->samples};
    fill(&found, aim->reader, (uint32_t)found.room, ANY_STATE);
    shot->count = found.count;
    if (found.count == 0)
        return MISSED;
    aim->taken_count++;
    taken_of_all++;
    is_any_taken = true;
    shot->ways = 0;
    if (!aim->is_listed)
        taken_from[listed_count++] = aim;
    aim->is_listed = true;
    const sample *only = shot->samples;
    if (found.count > 1)
        return MISSED;
    if (!is_plain(&found) || only->info.publication_handle != aim->writer ||
        only->part.iov_len > MOST_SAMPLE)
        return SOON;
    uint8_t record[MOST_RECORD];
    shot->sent_ns = clock_ns(CLOCK_REALTIME);
    bool is_whole = true;
    for (size_t at = 0; at < aim->way_count; at++) {
        size_t size = encode(record, &aim->ways[at].to, &aim->stream, aim->next, only,
                             aim->is_timed ? shot->sent_ns : 0);
        enum sent sent = send_record(aim->ways[at].wire, record, size);
        if (sent != NONE)
            shot->ways |= 1u << at;
        if (sent == PART)
            lower_wire(aim->ways[at].wire);
        is_whole = is_whole && sent == ALL;
    }
    if (!is_whole || !aim->is_all)
        return SOON;
    aim->next++;
    aim->is_aimed = true;
    return REST;
}

static enum shot shoot_at(int32_t reader, bool *is_taken)
{
    enum shot outcome = MISSED;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of(reader);
    if (aim != NULL && aim->is_aimed)
        outcome = send_lone(aim);
    *is_taken = aim != NULL && aim->taken_count > 0;
    pthread_mutex_unlock(&aims);
    return outcome;
}

enum shot shoot(int32_t reader)
{
    bool is_taken;
    return shoot_at(reader, &is_taken);
}

/* Wakes the waiting thread where nothing else does: to take is to make DDS forget the news. */
static int32_t alarm_condition;

/* In the thread of DDS that has just received it: one wake less on the way. What was sent is
   accounted for in the next turn, which its confirmation brings or the loop's next tick: a turn of
   its own would take the processor from those who are to get the sample. */
static void on_data(int32_t reader, void *unused)
{
    (void)unused;
    bool is_taken;
    if (shoot_at(reader, &is_taken) != REST && is_taken)
        dds.set_guard(alarm_condition, true);
}

bool is_alarm(int32_t condition)
{
    if (condition != alarm_condition)
        return false;
    dds.set_guard(condition, false);
    return true;
}

/* Not with the aims held: DDS waits for a thread that may be waiting for them. */
static bool listen_to(int32_t reader)
{
    static void *listener;
    if (listener == NULL && (listener = dds.create_listener(NULL)) != NULL)
        dds.on_data(listener, on_data, NULL, false);
    return alarm_condition && listener != NULL && dds.set_listener(reader, listener) == 0;
}

bool has_shot_since(int64_t monotonic_ns)
{
    pthread_mutex_lock(&aims);
    int64_t latest = last_shot_ns > monotonic_ns ? last_shot_ns : monotonic_ns;
    pthread_mutex_unlock(&aims);
    return clock_ns(CLOCK_MONOTONIC) - latest <= AIMED_NS;
}

bool is_late(void)
{
    bool is_any = false;
    int64_t now = clock_ns(CLOCK_REALTIME);
    pthread_mutex_lock(&aims);
    for (size_t at = 0; at < listed_count; at++)
        is_any = is_any || (taken_from[at]->taken_count > 0 &&
                            now - taken_from[at]->taken[taken_from[at]->oldest].sent_ns > LATE_NS);
    pthread_mutex_unlock(&aims);
    return is_any;
}

bool take_shot(int32_t reader, store *into)
{
    bool is_room = true;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of(reader);
    if (aim != NULL && aim->taken_count > 0) {
        shot_taken *shot = &aim->taken[aim->oldest];
        is_room = make_room(into, shot->count);
        if (is_room) {
            memcpy(into->samples + into->count, shot->samples, shot->count * sizeof *shot->samples);
            into->count += shot->count;
            aim->oldest = (aim->oldest + 1) % MOST_TAKEN;
            aim->taken_count--;
            taken_of_all--;
        }
    }
    pthread_mutex_unlock(&aims);
    return is_room;
}

/* ------------------------------------------------------------ what Python calls */

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

PyDoc_STRVAR(taken_doc,
             "taken() -> readers taken from since the last call, in that order, or None");

static PyObject *taken(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (!is_any_taken)
        Py_RETURN_NONE;
    int32_t readers[MOST_AIMS];
    size_t count = 0;
    pthread_mutex_lock(&aims);
    for (size_t at = 0; at < listed_count; at++) {
        taken_from[at]->is_listed = false;
        if (taken_from[at]->taken_count > 0)
            readers[count++] = taken_from[at]->reader;
    }
    listed_count = 0;
    is_any_taken = false;
    pthread_mutex_unlock(&aims);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t at = 0; list != NULL && at < count; at++) {
        PyObject *reader = PyLong_FromLong(readers[at]);
        if (reader == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)at, reader);
    }
    return list;
}

static outgoing *aim_for(int32_t reader)
{
    outgoing *aim = outgoing_of(reader);
    if (aim != NULL || (aim = outgoing_of(0)) != NULL)
        return aim;
    for (size_t at = 0; at < MOST_AIMS; at++)
        if (outgoings[at] == NULL)
            return outgoings[at] = calloc(1, sizeof *aim);
    return NULL;
}

PyDoc_STRVAR(aim_out_doc,
             "aim_out(reader, ((wire, to), ...), writer, stream, first, end, until monotonic ns,\n"
             "overdue ns, is all, is timed) -> whether its next samples, up to number `end`, will be\n"
             "sent at once, if they are that writer's and come until then, and none that was sent\n"
             "waits for longer to be accounted for; all: they go nowhere else; timed: they say when");

static bool get_ways(PyObject *given, way *ways, size_t *count)
{
    Py_ssize_t size = PyTuple_Size(given);
    if (size < 1 || size > MOST_WAYS) {
        PyErr_SetString(PyExc_ValueError, "one or two ways");
        return false;
    }
    for (Py_ssize_t at = 0; at < size; at++) {
        Py_buffer to;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, at), "iy*", &ways[at].wire, &to))
            return false;
        bool is_room = copy(&ways[at].to, &to);
        PyBuffer_Release(&to);
        if (!is_room)
            size = 0; /* the long way, then */
    }
    *count = (size_t)size;
    return true;
}

static PyObject *aim_out(PyObject *self, PyObject *args)
{
    (void)self;
    int reader, is_all, is_timed;
    unsigned long long writer, first, end;
    long long until_ns, overdue_ns;
    way ways[MOST_WAYS];
    size_t way_count;
    PyObject *given;
    Py_buffer stream;
    if (!PyArg_ParseTuple(args, "iO!Ky*KKLLpp", &reader, &PyTuple_Type, &given, &writer, &stream,
                          &first, &end, &until_ns, &overdue_ns, &is_all, &is_timed))
        return NULL;
    if (!get_ways(given, ways, &way_count)) {
        PyBuffer_Release(&stream);
        return NULL;
    }
    pthread_mutex_lock(&aims);
    outgoing *aim = way_count ? aim_for(reader) : NULL;
    bool is_aimed =
        aim != NULL && !aim->is_aimed && !aim->taken_count && copy(&aim->stream, &stream);
    bool is_new = is_aimed && !aim->is_listening;
    if (is_aimed) {
        aim->reader = reader;
        memcpy(aim->ways, ways, sizeof ways);
        aim->way_count = way_count;
        aim->writer = writer;
        aim->next = first;
        aim->end = end;
        aim->until_ns = until_ns;
        aim->overdue_ns = overdue_ns;
        aim->is_all = is_all;
        aim->is_timed = is_timed;
    }
    pthread_mutex_unlock(&aims);
    bool is_listening = is_new && listen_to(reader);
    if (is_aimed) {
        pthread_mutex_lock(&aims);
        aim->is_listening |= is_listening;
        aim->is_aimed = true;
        for (size_t at = 0; at < way_count; at++)
            aim->is_aimed = aim->is_aimed && !has_rest(ways[at].wire);
        is_aimed = aim->is_aimed;
        pthread_mutex_unlock(&aims);
    }
    PyBuffer_Release(&stream);
    return PyBool_FromLong(is_aimed);
}

PyDoc_STRVAR(keep_aim_doc,
             "keep_aim(reader, end, until monotonic ns) -> whether its next samples are still sent at\n"
             "once, as they were, from now on up to this number and until then");

static PyObject *keep_aim(PyObject *self, PyObject *args)
{
    (void)self;
    int reader;
    unsigned long long end;
    long long until_ns;
    if (!PyArg_ParseTuple(args, "iKL", &reader, &end, &until_ns))
        return NULL;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of(reader);
    bool is_aimed = aim != NULL && aim->is_aimed;
    if (is_aimed) {
        aim->end = end;
        aim->until_ns = until_ns;
    }
    pthread_mutex_unlock(&aims);
    return PyBool_FromLong(is_aimed);
}

PyDoc_STRVAR(expect_doc,
             "expect(wire, ns): an answer to what went over it is due then; nothing that is timed\n"
             "goes ahead over it afterwards");

static PyObject *expect(PyObject *self, PyObject *args)
{
    (void)self;
    int wire;
    long long at_ns;
    if (!PyArg_ParseTuple(args, "iL", &wire, &at_ns))
        return NULL;
    pthread_mutex_lock(&aims);
    size_t at = 0;
    while (at < MOST_WIRES && due[at].wire && due[at].wire != wire)
        at++;
    if (at < MOST_WIRES) {
        due[at].wire = wire;
        due[at].at_ns = at_ns;
    }
    pthread_mutex_unlock(&aims);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(lower_out_doc,
             "lower_out(reader) -> whether samples were taken and are still to be accounted for;\n"
             "from now on none is");

static PyObject *lower_out(PyObject *self, PyObject *reader)
{
    (void)self;
    long which = PyLong_AsLong(reader);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of((int32_t)which);
    bool is_taken = aim != NULL && aim->taken_count > 0;
    if (aim != NULL)
        aim->is_aimed = false;
    pthread_mutex_unlock(&aims);
    return PyBool_FromLong(is_taken);
}

PyDoc_STRVAR(sent_doc,
             "sent(reader) -> (when (ns), the ways it went, a bit for each) of what take() gives next\n"
             "because it was taken ahead, or None");

static PyObject *sent(PyObject *self, PyObject *reader)
{
    (void)self;
    long which = PyLong_AsLong(reader);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of((int32_t)which);
    bool is_taken = aim != NULL && aim->taken_count > 0;
    int64_t sent_ns = is_taken ? aim->taken[aim->oldest].sent_ns : 0;
    unsigned ways = is_taken ? aim->taken[aim->oldest].ways : 0;
    pthread_mutex_unlock(&aims);
    if (!is_taken)
        Py_RETURN_NONE;
    return Py_BuildValue("(LI)", (long long)sent_ns, ways);
}

PyDoc_STRVAR(forget_doc, "forget(reader): it is about to be deleted");

static PyObject *forget(PyObject *self, PyObject *reader)
{
    (void)self;
    long which = PyLong_AsLong(reader);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of((int32_t)which);
    if (aim != NULL && which) {
        strike_off(aim);
        taken_of_all -= aim->taken_count;
        for (; aim->taken_count > 0; aim->taken_count--) {
            shot_taken *shot = &aim->taken[aim->oldest];
            let_go(&(store){shot->samples, shot->count, shot->count});
            aim->oldest = (aim->oldest + 1) % MOST_TAKEN;
        }
        aim->is_aimed = aim->is_listening = false;
        aim->reader = 0;
    }
    pthread_mutex_unlock(&aims);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(lower_doc, "lower(wire): nothing is sent on it ahead; 0: on none");

static PyObject *lower(PyObject *self, PyObject *wire)
{
    (void)self;
    long which = PyLong_AsLong(wire);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(&aims);
    lower_wire((int)which);
    pthread_mutex_unlock(&aims);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(send_doc,
             "send(wire, record) -> how much of it was written, as a socket would say; when that is\n"
             "not all, or not its turn, nothing is sent ahead any more");

static PyObject *send_now(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    return python_send(args, count, &aims, lower_wire);
}

PyDoc_STRVAR(rest_doc,
             "rest(wire) -> what of a record that has gone ahead is still to be written, before\n"
             "anything else; told once");

static PyObject *rest_now(PyObject *self, PyObject *wire)
{
    (void)self;
    return python_rest(wire, &aims);
}

PyMethodDef outward_methods[] = {
    {"wake_by", wake_by, METH_O, wake_by_doc},
    {"taken", taken, METH_NOARGS, taken_doc},
    {"aim_out", aim_out, METH_VARARGS, aim_out_doc},
    {"keep_aim", keep_aim, METH_VARARGS, keep_aim_doc},
    {"expect", expect, METH_VARARGS, expect_doc},
    {"lower_out", lower_out, METH_O, lower_out_doc},
    {"sent", sent, METH_O, sent_doc},
    {"forget", forget, METH_O, forget_doc},
    {"lower", lower, METH_O, lower_doc},
    {"send", (PyCFunction)(void (*)(void))send_now, METH_FASTCALL, send_doc},
    {"rest", rest_now, METH_O, rest_doc},
    {NULL, NULL, 0, NULL},
};
