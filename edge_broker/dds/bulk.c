/* The inner loops of the edge: many samples of Cyclone DDS taken or written in one call, as the
   columns they travel in, and waiting for them. Called by samples.py only, which does the same in Python where this was
   not compiled. Functions of DDS come in as addresses: nothing of it is needed to compile. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* ------------------------------------------------------------ what Cyclone DDS offers */

typedef struct {
    uint32_t sample_state, view_state, instance_state;
    bool valid_data;
    int64_t source_timestamp;
    uint64_t instance_handle, publication_handle;
    uint32_t disposed_generation_count, no_writers_generation_count;
    uint32_t sample_rank, generation_rank, absolute_generation_rank;
} sample_info;

/* How the Python binding hands a sample to DDS and gets one. */
typedef struct {
    void *bytes;
    size_t size;
} container;

typedef int32_t (*collector)(void *, const sample_info *, const void *type, void *data);
typedef int32_t (*write_function)(int32_t writer, const void *sample, int64_t time);

enum { WRITE, DISPOSE, WRITE_DISPOSE, UNREGISTER, KINDS };

static struct {
    int32_t (*take)(int32_t reader, uint32_t most, uint64_t instance, uint32_t mask, collector,
                    void *);
    uint32_t (*size)(const void *data);
    void *(*to_ser_ref)(const void *data, size_t offset, size_t size, struct iovec *);
    void (*to_ser_unref)(void *data, const struct iovec *);
    bool (*untyped_to_sample)(const void *type, const void *data, void *sample, void **, void *);
    void (*release)(void *);
    int32_t (*flush)(int32_t writer);
    int32_t (*wait)(int32_t waitset, intptr_t *found, size_t most, int64_t timeout);
    int32_t (*take_status)(int32_t entity, uint32_t *status, uint32_t mask);
    write_function write[KINDS];
} dds;

#define OUT_OF_MEMORY (-5)
#define INSTANCE_ALIVE 16

/* ------------------------------------------------------------ taking */

/* Memory that is used again by the next take. */
static struct {
    sample_info *infos;
    size_t *ends; /* of each sample in the payload */
    size_t count, room;
    char *payload;
    size_t bytes, bytes_room;
} taken;

#define KEPT_BYTES (4u << 20)

static bool grow(void **memory, size_t *room, size_t needed, size_t item)
{
    if (needed <= *room)
        return true;
    size_t more = *room * 2 > needed ? *room * 2 : needed;
    void *grown = realloc(*memory, more * item);
    if (grown == NULL)
        return false;
    *memory = grown;
    *room = more;
    return true;
}

static bool append(const void *bytes, size_t size)
{
    if (!grow((void **)&taken.payload, &taken.bytes_room, taken.bytes + size, 1))
        return false;
    memcpy(taken.payload + taken.bytes, bytes, size);
    taken.bytes += size;
    return true;
}

static int32_t collect(void *unused, const sample_info *info, const void *type, void *data)
{
    (void)unused;
    if (taken.count == taken.room) {
        size_t room = taken.room;
        if (!grow((void **)&taken.infos, &room, taken.count + 64, sizeof *taken.infos))
            return OUT_OF_MEMORY;
        if (!grow((void **)&taken.ends, &taken.room, room, sizeof *taken.ends))
            return OUT_OF_MEMORY;
    }
    bool is_kept;
    if (info->valid_data) {
        struct iovec part;
        size_t size = dds.size(data);
        void *held = dds.to_ser_ref(data, 0, size, &part);
        is_kept = append(part.iov_base, size);
        dds.to_ser_unref(held, &part);
    } else {
        container key = {NULL, 0};
        if (!dds.untyped_to_sample(type, data, &key, NULL, NULL))
            return OUT_OF_MEMORY;
        is_kept = append(key.bytes, key.size);
        dds.release(key.bytes);
    }
    if (!is_kept)
        return OUT_OF_MEMORY;
    taken.infos[taken.count] = *info;
    taken.ends[taken.count++] = taken.bytes;
    return 0;
}

/* Writes to living instances only, which can go out in this order. */
static bool is_plain(void)
{
    bool is_sorted = true, is_of_one_writer = true, is_of_one_instance = true;
    for (size_t at = 0; at < taken.count; at++) {
        const sample_info *info = &taken.infos[at];
        if (!info->valid_data || info->instance_state != INSTANCE_ALIVE ||
            info->disposed_generation_count || info->no_writers_generation_count)
            return false;
        if (at) {
            is_sorted &= info[-1].source_timestamp <= info->source_timestamp;
            is_of_one_writer &= info[-1].publication_handle == info->publication_handle;
            is_of_one_instance &= info[-1].instance_handle == info->instance_handle;
        }
    }
    /* DDS hands out instance by instance; one writer's own order is that of its clock. */
    return is_sorted || is_of_one_instance || !is_of_one_writer;
}

static PyObject *entries(void)
{
    PyObject *list = PyList_New((Py_ssize_t)taken.count);
    size_t start = 0;
    for (size_t at = 0; list != NULL && at < taken.count; at++) {
        const sample_info *i = &taken.infos[at];
        PyObject *entry = Py_BuildValue(
            "(y#(IIIiLKKIIIII))", taken.payload + start, (Py_ssize_t)(taken.ends[at] - start),
            i->sample_state, i->view_state, i->instance_state, (int)i->valid_data,
            (long long)i->source_timestamp, (unsigned long long)i->instance_handle,
            (unsigned long long)i->publication_handle, i->disposed_generation_count,
            i->no_writers_generation_count, i->sample_rank, i->generation_rank,
            i->absolute_generation_rank);
        if (entry == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)at, entry);
        start = taken.ends[at];
    }
    return list;
}

/* One number of every sample, packed. */
#define COLUMN(type, pack, field)                                                                 \
    static PyObject *field##_column(void)                                                         \
    {                                                                                             \
        PyObject *column = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(taken.count * sizeof(type)));\
        if (column != NULL) {                                                                     \
            char *to = PyBytes_AS_STRING(column);                                                 \
            for (size_t at = 0; at < taken.count; at++) {                                         \
                type each = pack((type)taken.infos[at].field);                                    \
                memcpy(to + at * sizeof each, &each, sizeof each);                                \
            }                                                                                     \
        }                                                                                         \
        return column;                                                                            \
    }
COLUMN(uint64_t, htole64, source_timestamp)
COLUMN(uint64_t, (uint64_t), instance_handle)
COLUMN(uint64_t, (uint64_t), publication_handle)

static PyObject *size_column(void)
{
    size_t first = taken.ends[0];
    size_t at = 1;
    while (at < taken.count && taken.ends[at] - taken.ends[at - 1] == first)
        at++;
    if (at == taken.count)
        return PyBytes_FromStringAndSize(NULL, 0);
    PyObject *column = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(taken.count * sizeof(uint32_t)));
    if (column != NULL) {
        char *to = PyBytes_AS_STRING(column);
        size_t start = 0;
        for (at = 0; at < taken.count; at++) {
            uint32_t each = htole32((uint32_t)(taken.ends[at] - start));
            memcpy(to + at * sizeof each, &each, sizeof each);
            start = taken.ends[at];
        }
    }
    return column;
}

/* A number where all samples are of one writer. */
static PyObject *writer_column(void)
{
    uint64_t first = taken.infos[0].publication_handle;
    for (size_t at = 1; at < taken.count; at++)
        if (taken.infos[at].publication_handle != first)
            return publication_handle_column();
    return PyLong_FromUnsignedLongLong(first);
}

static PyObject *columns(void)
{
    return Py_BuildValue("(nNNny#NN)", (Py_ssize_t)taken.count, source_timestamp_column(),
                         size_column(), (Py_ssize_t)taken.ends[0], taken.payload,
                         (Py_ssize_t)taken.bytes, instance_handle_column(), writer_column());
}

PyDoc_STRVAR(take_doc,
             "take(reader, most, mask) -> None when there is nothing; a tuple (count, timestamps,\n"
             "sizes or nothing when all have the first one's, that, payload, instances, writers or\n"
             "the only one) when all are writes to instances that live and never died, in an order\n"
             "they can go out in; else a list of (sample, information)");

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
    taken.count = taken.bytes = 0;
    dds.take((int32_t)reader, (uint32_t)most, 0, (uint32_t)mask, collect, NULL);
    if (taken.count == 0)
        Py_RETURN_NONE;
    PyObject *result = is_plain() ? columns() : entries();
    if (taken.bytes_room > KEPT_BYTES) {
        free(taken.payload);
        taken.payload = NULL;
        taken.bytes_room = 0;
    }
    return result;
}

/* ------------------------------------------------------------ waiting */

#define MOST_READY 1024
#define DATA_AVAILABLE (1u << 8)

PyDoc_STRVAR(wait_doc,
             "wait(waitset, timeout ns) -> list of what was attached and has news; of readers the\n"
             "news is taken. Blocks without the interpreter lock");

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
    int32_t ready;
    Py_BEGIN_ALLOW_THREADS
    ready = dds.wait((int32_t)waitset, found, MOST_READY, timeout);
    if (ready > MOST_READY)
        ready = MOST_READY; /* the others are found next time */
    for (int32_t at = 0; at < ready; at++) {
        uint32_t status;
        dds.take_status((int32_t)found[at], &status, DATA_AVAILABLE);
    }
    Py_END_ALLOW_THREADS
    PyObject *list = PyList_New(ready > 0 ? ready : 0);
    for (int32_t at = 0; list != NULL && at < ready; at++) {
        PyObject *reader = PyLong_FromSsize_t((Py_ssize_t)found[at]);
        if (reader == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, at, reader);
    }
    return list;
}

/* ------------------------------------------------------------ writing */

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
    container sample = {(char *)payload.buf + offset, 0};
    PyThreadState *state = total - at > 1 ? PyEval_SaveThread() : NULL;
    for (; at < total; at++) {
        sample.size = size_of ? size_of[at] : (size_t)uniform;
        code = dds.write[kind_of ? kind_of[at] : WRITE]((int32_t)writer, &sample, time_of[at]);
        if (code)
            break;
        sample.bytes = (char *)sample.bytes + sample.size;
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
    return PyModule_Create(&definition);
}
