/* Writing whole records on connections that may take a part of one. Called by outward.c of the edge and by
   passage.c of the router. */

#include "rest.h"

#include <errno.h>
#include <sys/socket.h>

typedef struct rest {
    struct rest *next;
    int wire;
    size_t size;
    uint8_t bytes[];
} rest;

static rest *rests;

static rest **rest_of(int wire)
{
    rest **at = &rests;
    while (*at != NULL && (*at)->wire != wire)
        at = &(*at)->next;
    return at;
}

bool has_rest(int wire)
{
    return *rest_of(wire) != NULL;
}

/* All of it, sooner or later, or nothing. */
enum sent send_record(int wire, const uint8_t *record, size_t size)
{
    ssize_t sent = send(wire, record, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0)
        return NONE;
    if ((size_t)sent == size)
        return ALL;
    rest *left = PyMem_RawMalloc(sizeof *left + size);
    if (left == NULL)
        Py_FatalError("no memory for the rest of a record that is on its way");
    left->next = rests;
    left->wire = wire;
    left->size = size - (size_t)sent;
    memcpy(left->bytes, record + sent, left->size);
    rests = left;
    return PART;
}

PyObject *python_send(PyObject *const *args, Py_ssize_t count, pthread_mutex_t *lock,
                      void (*lower)(int wire))
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "send(wire, record)");
        return NULL;
    }
    long wire = PyLong_AsLong(args[0]);
    Py_buffer record;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &record, PyBUF_SIMPLE) < 0)
        return NULL;
    pthread_mutex_lock(lock);
    ssize_t sent = -1;
    int problem = EAGAIN;
    if (!has_rest((int)wire)) {
        sent = send((int)wire, record.buf, (size_t)record.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        problem = errno;
    }
    if (sent < record.len)
        lower((int)wire);
    pthread_mutex_unlock(lock);
    PyBuffer_Release(&record);
    if (sent < 0) {
        errno = problem;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromSsize_t(sent);
}

PyObject *python_rest(PyObject *wire, pthread_mutex_t *lock)
{
    long which = PyLong_AsLong(wire);
    if (PyErr_Occurred())
        return NULL;
    pthread_mutex_lock(lock);
    rest **at = rest_of((int)which), *left = *at;
    if (left != NULL)
        *at = left->next;
    pthread_mutex_unlock(lock);
    PyObject *bytes = left == NULL
                          ? PyBytes_FromStringAndSize(NULL, 0)
                          : PyBytes_FromStringAndSize((char *)left->bytes, (Py_ssize_t)left->size);
    PyMem_RawFree(left);
    return bytes;
}
