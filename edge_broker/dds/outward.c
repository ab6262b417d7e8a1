/* The shortcut of lone samples of deadline topics from DDS to a direct link. Python aims: it says what
   may be done with the next sample of a reader. Who receives that in DDS does it at once, without
   the interpreter, whatever Python does meanwhile; it is accounted for as the first thing of the
   next turn of the loop, and before anything in this one that depends on it. Called by shortcuts.py
   and bulk.c. */

#include "lone_batch.h"

#include "../../gateway/tunnel/rest.h"

#define ANY_STATE 0x7F
#define MOST_AIMS 256

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
    int32_t reader; /* 0: nobody's */
    bool is_aimed, is_taken, is_listed, is_sent, is_all, is_timed, is_listening;
    int wire;
    uint64_t writer, first;
    int64_t until_ns, sent_ns;
    blob to, stream;
    store samples;
} outgoing;

static outgoing *outgoings[MOST_AIMS];

/* What was taken from and is not accounted for, first things first. */
static outgoing *taken_from[MOST_AIMS];
static size_t taken_count;
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
    for (size_t at = 0; at < taken_count; at++)
        if (taken_from[at] != aim)
            taken_from[kept++] = taken_from[at];
    taken_count = kept;
    aim->is_listed = false;
}

static void lower_wire(int wire)
{
    for (size_t at = 0; at < MOST_AIMS && outgoings[at] != NULL; at++)
        if (wire == 0 || outgoings[at]->wire == wire)
            outgoings[at]->is_aimed = false;
}

/* Takes all the reader has if that is one sample, and more only if it is more. */
static enum shot send_lone(outgoing *aim)
{
    aim->is_aimed = false;
    if (clock_ns(CLOCK_MONOTONIC) >= aim->until_ns)
        return MISSED;
    fill(&aim->samples, aim->reader, 2, ANY_STATE);
    if (aim->samples.count == 0)
        return MISSED;
    aim->is_taken = is_any_taken = true;
    aim->is_sent = false;
    if (!aim->is_listed)
        taken_from[taken_count++] = aim;
    aim->is_listed = true;
    const sample *only = aim->samples.samples;
    if (aim->samples.count > 1)
        return MISSED;
    if (!is_plain(&aim->samples) || only->info.publication_handle != aim->writer ||
        only->part.iov_len > MOST_SAMPLE)
        return SOON;
    uint8_t record[MOST_RECORD];
    aim->sent_ns = clock_ns(CLOCK_REALTIME);
    size_t size = encode(record, &aim->to, &aim->stream, aim->first, only,
                         aim->is_timed ? aim->sent_ns : 0);
    enum sent sent = send_record(aim->wire, record, size);
    aim->is_sent = sent != NONE;
    if (sent == PART)
        lower_wire(aim->wire);
    return aim->is_all && sent == ALL ? REST : SOON;
}

static enum shot shoot_at(int32_t reader, bool *is_taken)
{
    enum shot outcome = MISSED;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of(reader);
    if (aim != NULL && aim->is_aimed)
        outcome = send_lone(aim);
    *is_taken = aim != NULL && aim->is_taken;
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

void take_shot(int32_t reader, store *into)
{
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of(reader);
    if (aim != NULL && aim->is_taken) {
        store empty = *into;
        *into = aim->samples;
        aim->samples = empty;
        aim->is_taken = false;
    }
    pthread_mutex_unlock(&aims);
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
    for (size_t at = 0; at < taken_count; at++) {
        taken_from[at]->is_listed = false;
        if (taken_from[at]->is_taken)
            readers[count++] = taken_from[at]->reader;
    }
    taken_count = 0;
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
             "aim_out(reader, wire, writer, to, stream, first, until monotonic ns, is all, is timed)\n"
             "-> whether its next sample will be sent at once, if it is that writer's and comes\n"
             "until then; all: it goes nowhere else; timed: it says when");

static PyObject *aim_out(PyObject *self, PyObject *args)
{
    (void)self;
    int reader, wire, is_all, is_timed;
    unsigned long long writer, first;
    long long until_ns;
    Py_buffer to, stream;
    if (!PyArg_ParseTuple(args, "iiKy*y*KLpp", &reader, &wire, &writer, &to, &stream, &first,
                          &until_ns, &is_all, &is_timed))
        return NULL;
    pthread_mutex_lock(&aims);
    outgoing *aim = aim_for(reader);
    bool is_aimed = aim != NULL && !aim->is_aimed && !aim->is_taken && copy(&aim->to, &to) &&
                    copy(&aim->stream, &stream);
    bool is_new = is_aimed && !aim->is_listening;
    if (is_aimed) {
        aim->reader = reader;
        aim->wire = wire;
        aim->writer = writer;
        aim->first = first;
        aim->until_ns = until_ns;
        aim->is_all = is_all;
        aim->is_timed = is_timed;
    }
    pthread_mutex_unlock(&aims);
    bool is_listening = is_new && listen_to(reader);
    if (is_aimed) {
        pthread_mutex_lock(&aims);
        aim->is_listening |= is_listening;
        is_aimed = aim->is_aimed = !has_rest(wire);
        pthread_mutex_unlock(&aims);
    }
    PyBuffer_Release(&to);
    PyBuffer_Release(&stream);
    return PyBool_FromLong(is_aimed);
}

PyDoc_STRVAR(lower_out_doc,
             "lower_out(reader) -> whether a sample was taken and is still to be accounted for;\n"
             "from now on none is");

static PyObject *lower_out(PyObject *self, PyObject *reader)
{
    (void)self;
    long which = PyLong_AsLong(reader);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of((int32_t)which);
    bool is_taken = aim != NULL && aim->is_taken;
    if (aim != NULL)
        aim->is_aimed = false;
    pthread_mutex_unlock(&aims);
    return PyBool_FromLong(is_taken);
}

PyDoc_STRVAR(sent_doc,
             "sent(reader) -> when (ns) the sample that was taken ahead was sent, or None; once");

static PyObject *sent(PyObject *self, PyObject *reader)
{
    (void)self;
    long which = PyLong_AsLong(reader);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(&aims);
    outgoing *aim = outgoing_of((int32_t)which);
    bool is_sent = aim != NULL && aim->is_sent;
    int64_t sent_ns = is_sent ? aim->sent_ns : 0;
    if (is_sent)
        aim->is_sent = false;
    pthread_mutex_unlock(&aims);
    if (!is_sent)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(sent_ns);
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
        let_go(&aim->samples);
        strike_off(aim);
        aim->is_aimed = aim->is_taken = aim->is_sent = aim->is_listening = false;
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
    {"lower_out", lower_out, METH_O, lower_out_doc},
    {"sent", sent, METH_O, sent_doc},
    {"forget", forget, METH_O, forget_doc},
    {"lower", lower, METH_O, lower_doc},
    {"send", (PyCFunction)(void (*)(void))send_now, METH_FASTCALL, send_doc},
    {"rest", rest_now, METH_O, rest_doc},
    {NULL, NULL, 0, NULL},
};
