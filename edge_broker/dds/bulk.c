/* The inner loops of the edge: many samples of Cyclone DDS taken or written in one call, as the
   columns they travel in, and waiting for them. Called by samples.py only; where this was not
   compiled bulk_in_python.py does the same. Functions of DDS come in as addresses: nothing of it is
   needed to compile. */

#include "bulk.h"

#include <endian.h>

struct dds_functions dds;

#define OUT_OF_MEMORY (-5)
#define INSTANCE_ALIVE 16

/* ------------------------------------------------------------ taking */

/* Filled by one take, with the interpreter lock held; its memory serves the next one. */
static store taken;

bool make_room(store *what, size_t for_more)
{
    if (what->count + for_more <= what->room)
        return true;
    size_t room = what->room * 2 + 64;
    sample *grown = realloc(what->samples, room * sizeof *grown);
    if (grown == NULL)
        return false;
    what->samples = grown;
    what->room = room;
    return true;
}

static int32_t collect(void *into, const sample_info *info, const void *type, void *data)
{
    store *to = into;
    if (!make_room(to, 1))
        return OUT_OF_MEMORY;
    sample *next = &to->samples[to->count];
    next->info = *info;
    if (info->valid_data) {
        next->held = dds.to_ser_ref(data, 0, dds.size(data), &next->part);
    } else {
        container key = {NULL, 0};
        if (!dds.untyped_to_sample(type, data, &key, NULL, NULL))
            return OUT_OF_MEMORY;
        next->part = (struct iovec){key.bytes, key.size};
        next->held = NULL;
    }
    to->count++;
    return 0;
}

void fill(store *into, int32_t reader, uint32_t most, uint32_t mask)
{
    dds.take(reader, most, 0, mask, collect, into);
}

void let_go(store *what)
{
    for (size_t at = 0; at < what->count; at++) {
        sample *each = &what->samples[at];
        if (each->held != NULL)
            dds.to_ser_unref(each->held, &each->part);
        else
            dds.release(each->part.iov_base);
    }
    what->count = 0;
}

bool is_plain(const store *what)
{
    for (size_t at = 0; at < what->count; at++) {
        const sample_info *info = &what->samples[at].info;
        if (!info->valid_data || info->instance_state != INSTANCE_ALIVE ||
            info->disposed_generation_count || info->no_writers_generation_count)
            return false;
    }
    return true;
}

typedef struct {
    int64_t time;
    size_t at;
} place;

static int by_time(const void *one, const void *other)
{
    const place *a = one, *b = other;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->at < b->at ? -1 : 1;
}

/* DDS hands out instance by instance; one writer's own order is that of its clock. Samples of one
   instance keep their order even if it set that back. */
static bool put_in_order(void)
{
    bool is_sorted = true;
    int64_t latest = taken.samples[0].info.source_timestamp;
    for (size_t at = 1; at < taken.count; at++) {
        const sample_info *info = &taken.samples[at].info, *before = &taken.samples[at - 1].info;
        if (info->publication_handle != before->publication_handle)
            return true;
        if (info->source_timestamp >= latest)
            latest = info->source_timestamp;
        else if (info->instance_handle != before->instance_handle)
            is_sorted = false;
    }
    if (is_sorted)
        return true;
    place *places = malloc(taken.count * sizeof *places);
    sample *ordered = malloc(taken.room * sizeof *ordered);
    if (places == NULL || ordered == NULL) {
        free(places);
        free(ordered);
        return false;
    }
    for (size_t at = 0; at < taken.count; at++) {
        const sample_info *info = &taken.samples[at].info;
        int64_t time = info->source_timestamp;
        if (at && info->instance_handle == taken.samples[at - 1].info.instance_handle &&
            places[at - 1].time > time)
            time = places[at - 1].time;
        places[at] = (place){time, at};
    }
    qsort(places, taken.count, sizeof *places, by_time);
    for (size_t at = 0; at < taken.count; at++)
        ordered[at] = taken.samples[places[at].at];
    free(places);
    free(taken.samples);
    taken.samples = ordered;
    return true;
}

static PyObject *entries(void)
{
    PyObject *list = PyList_New((Py_ssize_t)taken.count);
    for (size_t at = 0; list != NULL && at < taken.count; at++) {
        const sample_info *i = &taken.samples[at].info;
        const struct iovec *part = &taken.samples[at].part;
        PyObject *entry = Py_BuildValue(
            "(y#(IIIiLKKIIIII))", part->iov_base, (Py_ssize_t)part->iov_len,
            i->sample_state, i->view_state, i->instance_state, (int)i->valid_data,
            (long long)i->source_timestamp, (unsigned long long)i->instance_handle,
            (unsigned long long)i->publication_handle, i->disposed_generation_count,
            i->no_writers_generation_count, i->sample_rank, i->generation_rank,
            i->absolute_generation_rank);
        if (entry == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)at, entry);
    }
    return list;
}

static PyObject *new_column(size_t width)
{
    return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(taken.count * width));
}

static PyObject *time_column(void)
{
    PyObject *column = new_column(sizeof(uint64_t));
    for (size_t at = 0; column != NULL && at < taken.count; at++) {
        uint64_t each = htole64((uint64_t)taken.samples[at].info.source_timestamp);
        memcpy(PyBytes_AS_STRING(column) + at * sizeof each, &each, sizeof each);
    }
    return column;
}

/* Handles stay in this process: they are packed as they are. */
static PyObject *handle_column(bool of_writers)
{
    PyObject *column = new_column(sizeof(uint64_t));
    for (size_t at = 0; column != NULL && at < taken.count; at++) {
        const sample_info *info = &taken.samples[at].info;
        uint64_t each = of_writers ? info->publication_handle : info->instance_handle;
        memcpy(PyBytes_AS_STRING(column) + at * sizeof each, &each, sizeof each);
    }
    return column;
}

static PyObject *size_column(void)
{
    size_t first = taken.samples[0].part.iov_len;
    size_t at = 1;
    while (at < taken.count && taken.samples[at].part.iov_len == first)
        at++;
    if (at == taken.count) /* they are uniform */
        return new_column(0);
    PyObject *column = new_column(sizeof(uint32_t));
    for (at = 0; column != NULL && at < taken.count; at++) {
        uint32_t each = htole32((uint32_t)taken.samples[at].part.iov_len);
        memcpy(PyBytes_AS_STRING(column) + at * sizeof each, &each, sizeof each);
    }
    return column;
}

static PyObject *payload(void)
{
    size_t bytes = 0;
    for (size_t at = 0; at < taken.count; at++)
        bytes += taken.samples[at].part.iov_len;
    PyObject *whole = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (whole != NULL) {
        char *to = PyBytes_AS_STRING(whole);
        for (size_t at = 0; at < taken.count; at++) {
            const struct iovec *part = &taken.samples[at].part;
            memcpy(to, part->iov_base, part->iov_len);
            to += part->iov_len;
        }
    }
    return whole;
}

/* A number where all samples are of one writer. */
static PyObject *writer_column(void)
{
    uint64_t first = taken.samples[0].info.publication_handle;
    for (size_t at = 1; at < taken.count; at++)
        if (taken.samples[at].info.publication_handle != first)
            return handle_column(true);
    return PyLong_FromUnsignedLongLong(first);
}

static PyObject *columns(void)
{
    return Py_BuildValue("(nNNnNNN)", (Py_ssize_t)taken.count, time_column(),
                         size_column(), (Py_ssize_t)taken.samples[0].part.iov_len, payload(),
                         handle_column(false), writer_column());
}

PyDoc_STRVAR(take_doc,
             "take(reader, most, mask) -> None when there is nothing; (count, timestamps,\n"
             "sizes or nothing when all have the first one's, that, payload, instances, writers\n"
             "or the only one), in the order of writing, when all are writes to instances that\n"
             "live and never died; else a list of (sample, information)");

static PyObject *take(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "take(reader, most, mask)");
        return NULL;
    }
    long reader = PyLong_AsLong(args[0]), most = PyLong_AsLong(args[1]);
    long mask = PyLong_AsLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!take_shot((int32_t)reader, &taken))
        return PyErr_NoMemory();
    /* Two were taken because there were more: what they mean shows in all of them together. */
    if (taken.count != 1 && (size_t)most > taken.count)
        fill(&taken, (int32_t)reader, (uint32_t)most - (uint32_t)taken.count, (uint32_t)mask);
    if (taken.count == 0)
        Py_RETURN_NONE;
    PyObject *result;
    if (!is_plain(&taken))
        result = entries();
    else
        result = put_in_order() ? columns() : PyErr_NoMemory();
    let_go(&taken);
    return result;
}

/* ------------------------------------------------------------ waiting */

#define MOST_READY 1024
#define MOST_SHOTS 16 /* more readers at once are no lone samples */
#define DATA_AVAILABLE (1u << 8)

/* Looks meanwhile whether what went ahead waits for too long to be accounted for: its answer wakes
   others, and where none comes nobody. */
static int32_t wait_and_look(int32_t waitset, intptr_t *found, int64_t timeout)
{
    static int64_t woken_ns;
    int32_t count;
    bool is_over;
    do {
        bool is_watchful = timeout > LOOK_NS && has_shot_since(woken_ns);
        int64_t slice = is_watchful ? LOOK_NS : timeout;
        count = dds.wait(waitset, found, MOST_READY, slice);
        is_over = count != 0 || !is_watchful || is_late();
        timeout -= slice;
    } while (!is_over);
    woken_ns = clock_ns(CLOCK_MONOTONIC);
    return count;
}

PyDoc_STRVAR(wait_doc,
             "wait(waitset, timeout ns) -> list of what was attached and has news, but for readers\n"
             "the shortcut has emptied; of readers the news is taken. Blocks without the\n"
             "interpreter lock");

static PyObject *wait_for_data(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    intptr_t found[MOST_READY];
    (void)self;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "wait(waitset, timeout ns)");
        return NULL;
    }
    long waitset = PyLong_AsLong(args[0]);
    long long timeout = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    size_t ready = 0;
    int64_t until = 0;
    bool may_rest = true;
    Py_BEGIN_ALLOW_THREADS
    while (may_rest) {
        int32_t count = wait_and_look((int32_t)waitset, found, timeout);
        if (count > MOST_READY)
            count = MOST_READY; /* the others are found next time */
        for (int32_t at = 0; at < count; at++) {
            uint32_t status;
            dds.take_status((int32_t)found[at], &status, DATA_AVAILABLE);
            enum shot shot = is_alarm((int32_t)found[at]) ? SOON : MISSED;
            if (shot == MISSED && count <= MOST_SHOTS)
                shot = shoot((int32_t)found[at]);
            may_rest = may_rest && shot == REST;
            if (shot == MISSED)
                found[ready++] = found[at];
        }
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        until = until ? until : now + REST_NS;
        timeout = until - now;
        may_rest = may_rest && count > 0 && timeout > 0;
    }
    Py_END_ALLOW_THREADS
    PyObject *list = PyList_New((Py_ssize_t)ready);
    for (size_t at = 0; list != NULL && at < ready; at++) {
        PyObject *reader = PyLong_FromSsize_t((Py_ssize_t)found[at]);
        if (reader == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)at, reader);
    }
    return list;
}

/* ------------------------------------------------------------ writing */

bool is_encoded(const uint8_t *sample, size_t size)
{
    return size > 3 && (sample[1] <= PL_CDR_LE || (sample[1] >= CDR2_BE && sample[1] <= PL_CDR2_LE));
}

PyDoc_STRVAR(write_doc,
             "write(writer, payload, sizes or None, uniform size, timestamps, kinds, start) ->\n"
             "(index, code): writes from `start` on up to the first failure, and sends it off");

static PyObject *write_columns(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "write takes seven arguments");
        return NULL;
    }
    long writer = PyLong_AsLong(args[0]);
    Py_ssize_t uniform = PyLong_AsSsize_t(args[3]), start = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred())
        return NULL;
    Py_buffer payload = {0}, sizes = {0}, times = {0}, kinds = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(args[1], &payload, PyBUF_SIMPLE) < 0 ||
        (args[2] != Py_None && PyObject_GetBuffer(args[2], &sizes, PyBUF_SIMPLE) < 0) ||
        PyObject_GetBuffer(args[4], &times, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(args[5], &kinds, PyBUF_SIMPLE) < 0)
        goto done;

    size_t total = (size_t)times.len / sizeof(int64_t);
    const uint32_t *size_of = sizes.buf;
    const int64_t *time_of = times.buf;
    const uint8_t *kind_of = kinds.len ? kinds.buf : NULL;
    bool is_sound = start >= 0 && (size_t)start <= total && uniform >= 0 &&
                    (!kind_of || (size_t)kinds.len == total) &&
                    (!size_of || (size_t)sizes.len == total * sizeof(uint32_t));
    size_t bytes = 0, offset = 0;
    for (size_t at = 0; is_sound && at < total; at++) {
        if (at == (size_t)start)
            offset = bytes;
        bytes += size_of ? size_of[at] : (size_t)uniform;
        is_sound = !kind_of || kind_of[at] < KINDS;
    }
    if (!is_sound || bytes != (size_t)payload.len) {
        PyErr_SetString(PyExc_ValueError, "columns contradict each other");
        goto done;
    }
    size_t at = (size_t)start;
    int32_t code = 0;
    if (at < total && was_written((int32_t)writer, time_of[at], total - at == 1, &code)) {
        result = Py_BuildValue("(ni)", (Py_ssize_t)(code ? at : total), (int)code);
        goto done;
    }
    container next = {(char *)payload.buf + offset, 0};
    PyThreadState *state = total - at > 1 ? PyEval_SaveThread() : NULL;
    for (; at < total; at++) {
        next.size = size_of ? size_of[at] : (size_t)uniform;
        code = is_encoded(next.bytes, next.size)
                   ? dds.write[kind_of ? kind_of[at] : WRITE]((int32_t)writer, &next, time_of[at])
                   : BAD_PARAMETER;
        if (code)
            break;
        next.bytes = (char *)next.bytes + next.size;
    }
    dds.flush((int32_t)writer);
    if (state != NULL)
        PyEval_RestoreThread(state);
    result = Py_BuildValue("(ni)", (Py_ssize_t)at, (int)code);
done:
    if (payload.obj)
        PyBuffer_Release(&payload);
    if (sizes.obj)
        PyBuffer_Release(&sizes);
    if (times.obj)
        PyBuffer_Release(&times);
    if (kinds.obj)
        PyBuffer_Release(&kinds);
    return result;
}

/* ------------------------------------------------------------ the module */

PyDoc_STRVAR(bind_doc, "bind(addresses): the functions of Cyclone DDS in the order of `dds`");

static PyObject *bind(PyObject *self, PyObject *addresses)
{
    (void)self;
    Py_ssize_t count = (Py_ssize_t)(sizeof dds / sizeof(void *));
    PyObject *sequence = PySequence_Fast(addresses, "bind(addresses)");
    if (sequence == NULL)
        return NULL;
    void *found[sizeof dds / sizeof(void *)];
    bool is_whole = PySequence_Fast_GET_SIZE(sequence) == count;
    for (Py_ssize_t at = 0; is_whole && at < count; at++)
        is_whole = (found[at] = PyLong_AsVoidPtr(PySequence_Fast_GET_ITEM(sequence, at))) != NULL;
    Py_DECREF(sequence);
    if (!is_whole) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "bind takes %zd addresses, none of them 0", count);
        return NULL;
    }
    memcpy(&dds, found, sizeof dds);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_O, bind_doc},
    {"wait", (PyCFunction)(void (*)(void))wait_for_data, METH_FASTCALL, wait_doc},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {"write", (PyCFunction)(void (*)(void))write_columns, METH_FASTCALL, write_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "bulk", "Many samples of Cyclone DDS at once.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_bulk(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (PyModule_AddFunctions(module, outward_methods) < 0 ||
                           PyModule_AddFunctions(module, inward_methods) < 0 ||
                           PyModule_AddFunctions(module, lean_methods) < 0))
        Py_CLEAR(module);
    return module;
}
