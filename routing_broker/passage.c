/* The passage of frames through a router without the interpreter: what comes over the express link of one
   edge for others whose links are open is written on these at once, untouched. Python says where edges are
   and which links are open, reads what is not passed on here, and collects what was. Called by passages.py;
   wires are read by the one thread that waits for them, here or in its turns. */

#include "../gateway/tunnel/rest.h" /* Python.h comes before all else */

#include "../gateway/tunnel/frame.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#define MOST_WIRES 65536
#define MOST_NAME 80
#define EDGES 4096
#define STREAMS 4096
#define MOST_CHUNK (128 * 1024) /* what Python has room for */
#define MOST_STUCK 64
#define MOST_NEWS 64

/* What follows is everybody's who holds this, for as long as a chunk takes to be passed on; with the
   interpreter lock or without it, which must not be asked for within. */
static pthread_mutex_t aims = PTHREAD_MUTEX_INITIALIZER;

/* By descriptor. */
static bool is_watched[MOST_WIRES]; /* stands at the beginning of a frame, and is to be read here */
static bool is_open[MOST_WIRES];    /* nothing waits to be written on it */
static struct {
    uint64_t frames, bytes;
} came[MOST_WIRES]; /* what was passed on, by where it came from, since it was collected last */
static int most_wire; /* the highest of these */

/* By name. */
typedef struct {
    uint8_t name[MOST_NAME];
    size_t size;
    int wire;       /* of an edge */
    uint64_t bytes; /* of a stream: passed on, once for each edge, since that was collected last */
} entry;

static entry edges[EDGES], streams[STREAMS];
static size_t stream_count;

static uint8_t chunk[MOST_CHUNK];
static text left; /* of what was read last: for Python, before anything else is read */
static int left_of;
static int stuck[MOST_STUCK]; /* took a part of a record only: Python is to see to the rest */
static size_t stuck_count;

/* The entry of this name, or the empty one that may become it; NULL: there is neither. */
static entry *find(entry *table, size_t room, text name)
{
    uint32_t hash = 2166136261u;
    size_t size = (size_t)(name.end - name.at);
    if (size == 0 || size > MOST_NAME)
        return NULL;
    for (const uint8_t *at = name.at; at < name.end; at++)
        hash = (hash ^ *at) * 16777619u;
    for (size_t tried = 0; tried < room; tried++) {
        entry *here = &table[(hash + tried) % room];
        if (here->size == 0 || (here->size == size && memcmp(here->name, name.at, size) == 0))
            return here;
    }
    return NULL;
}

static void name_it(entry *fresh, text name)
{
    fresh->size = (size_t)(name.end - name.at);
    memcpy(fresh->name, name.at, fresh->size);
}

static void lower(int wire)
{
    if (wire == 0)
        memset(is_open, 0, sizeof is_open);
    else if (wire > 0 && wire < MOST_WIRES)
        is_open[wire] = false;
}

/* Where frames go. */
typedef struct {
    int to[MOST_STUCK];
    size_t count;
} route;

static bool has_way(const route *which, int wire)
{
    for (size_t at = 0; at < which->count; at++)
        if (which->to[at] == wire)
            return true;
    return false;
}

static bool is_same(const route *one, const route *other)
{
    return one->count == other->count &&
           memcmp(one->to, other->to, one->count * sizeof one->to[0]) == 0;
}

static bool may_pass(const route *way)
{
    for (size_t at = 0; at < way->count; at++)
        if (!is_open[way->to[at]])
            return false;
    return way->count > 0 && stuck_count + way->count <= MOST_STUCK;
}

/* False: it is for Python, because it says more than where it goes, or goes where nobody is. `stream`
   is NULL where it is no batch; it may be an entry that has no name yet. */
static bool read_way(int wire, text frame, route *way, entry **stream, text *name)
{
    text envelope, value;
    uint64_t tag;
    if (!get_envelope(frame, &envelope))
        return false;
    way->count = 0;
    *stream = NULL;
    while (envelope.at < envelope.end) {
        if (!get(&envelope, &tag) || (tag & 7) != OCTETS || !get_octets(&envelope, &value))
            return false;
        if (tag == TO) {
            const entry *edge = find(edges, EDGES, value);
            if (edge == NULL || edge->size == 0 || edge->wire == wire ||
                way->count == MOST_STUCK || has_way(way, edge->wire))
                return false;
            way->to[way->count++] = edge->wire;
        } else if (tag == BATCH) {
            if (!get(&value, &tag) || tag != STREAM || !get_octets(&value, name))
                return false;
            *stream = find(streams, STREAMS, *name);
            if (*stream == NULL || ((*stream)->size == 0 && stream_count > STREAMS / 2))
                return false;
        } else if (tag == TRACE || tag == OPEN) {
            return false;
        }
    }
    return true;
}

/* What was passed on counts as if Python had done it. */
static void account(int wire, text run, const route *way)
{
    route unused;
    text frame, name;
    entry *stream;
    if (wire > most_wire)
        most_wire = wire;
    while (get_record(&run, &frame) && read_way(wire, frame, &unused, &stream, &name)) {
        uint64_t size = (uint64_t)(frame.end - frame.at);
        came[wire].frames++;
        came[wire].bytes += size;
        if (stream == NULL)
            continue;
        if (stream->size == 0) {
            name_it(stream, name);
            stream_count++;
        }
        stream->bytes += size * way->count;
    }
}

/* Records that go the same way are written together. False: Python is to do it. */
static bool pass(int wire, text run, const route *way)
{
    if (run.at == run.end)
        return true;
    if (!may_pass(way))
        return false;
    for (size_t at = 0; at < way->count; at++) {
        enum sent sent = send_record(way->to[at], run.at, (size_t)(run.end - run.at));
        if (sent != ALL)
            lower(way->to[at]);
        if (sent == PART)
            stuck[stuck_count++] = way->to[at];
        /* To those before it goes twice, then: edges know what they have had. */
        if (sent == NONE)
            return false;
    }
    account(wire, run, way);
    return true;
}

/* Passes on as many records as it can, and returns the rest. */
static text pass_all(int wire, text records)
{
    text run = {records.at, records.at}, next = records, frame, name;
    route way = {.count = 0}, this;
    entry *stream;
    while (get_record(&next, &frame) && read_way(wire, frame, &this, &stream, &name)) {
        if (run.at < run.end && !is_same(&this, &way)) {
            if (!pass(wire, run, &way))
                return (text){run.at, records.end};
            run.at = run.end;
        }
        way = this;
        run.end = next.at;
    }
    return (text){pass(wire, run, &way) ? run.end : run.at, records.end};
}

/* Reads once and passes on what it can. False: Python is to read what is left, or all. */
static bool receive(int wire)
{
    bool is_done = false;
    pthread_mutex_lock(&aims);
    ssize_t got = 0;
    if (wire > 0 && wire < MOST_WIRES && is_watched[wire])
        got = recv(wire, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got > 0) {
        left = pass_all(wire, (text){chunk, chunk + got});
        left_of = wire;
        is_done = left.at == left.end && stuck_count == 0;
    }
    pthread_mutex_unlock(&aims);
    return is_done;
}

/* ------------------------------------------------------------ what Python calls */

PyDoc_STRVAR(await_wires_doc,
             "await_wires(epoll, timeout ms) -> a descriptor Python is to read, in a list that is empty\n"
             "when something is left or stuck; None: nothing of all that. Blocks without the\n"
             "interpreter lock");

static PyObject *await_wires(PyObject *self, PyObject *args)
{
    (void)self;
    int epoll, timeout_ms, found, unread = 0;
    struct epoll_event ready[MOST_NEWS];
    if (!PyArg_ParseTuple(args, "ii", &epoll, &timeout_ms))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    do {
        found = epoll_wait(epoll, ready, MOST_NEWS, timeout_ms);
        for (int at = 0; at < found && unread == 0; at++)
            if (!receive(ready[at].data.fd))
                unread = ready[at].data.fd;
    } while (found > 0 && unread == 0);
    Py_END_ALLOW_THREADS
    if (left.at < left.end || stuck_count)
        return PyList_New(0);
    if (unread == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("[i]", unread);
}

PyDoc_STRVAR(take_stuck_doc, "take_stuck() -> descriptors that took a part of a record; once");

static PyObject *take_stuck(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    /* Only the thread that reads here comes here. */
    PyObject *found = PyList_New(0);
    for (size_t at = 0; found != NULL && at < stuck_count; at++) {
        PyObject *wire = PyLong_FromLong(stuck[at]);
        if (wire == NULL || PyList_Append(found, wire) < 0)
            Py_CLEAR(found);
        Py_XDECREF(wire);
    }
    stuck_count = 0;
    return found;
}

PyDoc_STRVAR(read_doc, "read() -> (descriptor, what was read and not passed on), or None; once");

static PyObject *read_left(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    /* Only the thread that reads here comes here. */
    if (left.at == left.end)
        Py_RETURN_NONE;
    PyObject *found = Py_BuildValue("(iy#)", left_of, left.at, (Py_ssize_t)(left.end - left.at));
    left.at = left.end;
    return found;
}

PyDoc_STRVAR(watch_doc, "watch(wire, is_at_boundary) -> whether it may be read ahead of turns");

static PyObject *watch(PyObject *self, PyObject *args)
{
    (void)self;
    int wire, is_at_boundary;
    if (!PyArg_ParseTuple(args, "ip", &wire, &is_at_boundary))
        return NULL;
    bool may_be = wire > 0 && wire < MOST_WIRES && is_at_boundary;
    pthread_mutex_lock(&aims);
    if (wire > 0 && wire < MOST_WIRES)
        is_watched[wire] = is_at_boundary;
    pthread_mutex_unlock(&aims);
    return PyBool_FromLong(may_be);
}

PyDoc_STRVAR(raise_doc, "open(wire): nothing waits to be written on it");

static PyObject *raise_wire(PyObject *self, PyObject *wire)
{
    (void)self;
    long which = PyLong_AsLong(wire);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(&aims);
    if (which > 0 && which < MOST_WIRES)
        is_open[which] = !has_rest((int)which);
    pthread_mutex_unlock(&aims);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(lower_doc, "lower(wire): nothing is passed on to it; 0: to none");

static PyObject *lower_wire(PyObject *self, PyObject *wire)
{
    (void)self;
    long which = PyLong_AsLong(wire);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(&aims);
    lower((int)which);
    pthread_mutex_unlock(&aims);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(route_doc, "route({edge: wire}): where edges are, all of them");

static PyObject *route_edges(PyObject *self, PyObject *where)
{
    (void)self;
    if (!PyDict_Check(where)) {
        PyErr_SetString(PyExc_TypeError, "route({edge: wire})");
        return NULL;
    }
    PyObject *edge, *wire;
    Py_ssize_t at = 0;
    bool is_sound = true;
    pthread_mutex_lock(&aims); /* only by readers is it waited for, which hold it without Python's */
    memset(edges, 0, sizeof edges);
    while (is_sound && PyDict_Next(where, &at, &edge, &wire)) {
        Py_ssize_t size;
        const char *name = PyUnicode_AsUTF8AndSize(edge, &size);
        long which = PyLong_AsLong(wire);
        is_sound = name != NULL && !PyErr_Occurred();
        if (!is_sound || which <= 0 || which >= MOST_WIRES || at > EDGES / 2)
            continue;
        text key = {(const uint8_t *)name, (const uint8_t *)name + size};
        entry *fresh = find(edges, EDGES, key);
        if (fresh != NULL) {
            name_it(fresh, key);
            fresh->wire = (int)which;
        }
    }
    pthread_mutex_unlock(&aims);
    if (!is_sound)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(collect_doc,
             "collect() -> ([(wire, frames, bytes)], [(stream, bytes)]) passed on since the last call;\n"
             "of streams, once for each edge they went to");

static PyObject *collect(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    static entry taken[STREAMS];
    size_t taken_count = 0;
    PyObject *by_wire = PyList_New(0), *by_stream = PyList_New(0), *row;
    bool is_sound = by_wire != NULL && by_stream != NULL;
    for (int wire = 1; is_sound && wire <= most_wire; wire++) {
        pthread_mutex_lock(&aims);
        uint64_t frames = came[wire].frames, bytes = came[wire].bytes;
        came[wire].frames = came[wire].bytes = 0;
        pthread_mutex_unlock(&aims);
        if (frames == 0)
            continue;
        row = Py_BuildValue("(iKK)", wire, (unsigned long long)frames, (unsigned long long)bytes);
        is_sound = row != NULL && PyList_Append(by_wire, row) == 0;
        Py_XDECREF(row);
    }
    pthread_mutex_lock(&aims);
    for (size_t at = 0; at < STREAMS; at++)
        if (streams[at].size)
            taken[taken_count++] = streams[at];
    memset(streams, 0, sizeof streams);
    stream_count = 0;
    pthread_mutex_unlock(&aims);
    for (size_t at = 0; is_sound && at < taken_count; at++) {
        row = Py_BuildValue("(y#K)", taken[at].name, (Py_ssize_t)taken[at].size,
                            (unsigned long long)taken[at].bytes);
        is_sound = row != NULL && PyList_Append(by_stream, row) == 0;
        Py_XDECREF(row);
    }
    if (is_sound && !PyErr_Occurred())
        return Py_BuildValue("(NN)", by_wire, by_stream);
    Py_XDECREF(by_wire);
    Py_XDECREF(by_stream);
    return NULL;
}

PyDoc_STRVAR(send_doc,
             "send(wire, record) -> how much of it was written, as a socket would say; when that is\n"
             "not all, or not its turn, nothing is passed on to it any more");

static PyObject *send_now(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    return python_send(args, count, &aims, lower);
}

PyDoc_STRVAR(rest_doc,
             "rest(wire) -> what of a record that was passed on is still to be written, before\n"
             "anything else; told once");

static PyObject *rest_now(PyObject *self, PyObject *wire)
{
    (void)self;
    return python_rest(wire, &aims);
}

static PyMethodDef methods[] = {
    {"await_wires", await_wires, METH_VARARGS, await_wires_doc},
    {"take_stuck", take_stuck, METH_NOARGS, take_stuck_doc},
    {"read", read_left, METH_NOARGS, read_doc},
    {"watch", watch, METH_VARARGS, watch_doc},
    {"open", raise_wire, METH_O, raise_doc},
    {"lower", lower_wire, METH_O, lower_doc},
    {"route", route_edges, METH_O, route_doc},
    {"collect", collect, METH_NOARGS, collect_doc},
    {"send", (PyCFunction)(void (*)(void))send_now, METH_FASTCALL, send_doc},
    {"rest", rest_now, METH_O, rest_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "passage", "See passage.c.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_passage(void)
{
    return PyModule_Create(&definition);
}
