/* Writing whole records on connections that may take a part of one: the rest is kept for Python, and nothing
   is written before it. Shared by the compiled parts of both brokers. */

#ifndef DDSWAN_REST_H
#define DDSWAN_REST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Those below are called with the lock held that python_send and python_rest take. */
enum sent { NONE, PART, ALL };
enum sent send_record(int wire, const uint8_t *record, size_t size);
bool has_rest(int wire);

/* send(wire, record) of Python: as a socket would, but not before a rest. `lower` is called with the lock
   held when it did not take everything. */
PyObject *python_send(PyObject *const *args, Py_ssize_t count, pthread_mutex_t *lock,
                      void (*lower)(int wire));
/* rest(wire) of Python: told once. */
PyObject *python_rest(PyObject *wire, pthread_mutex_t *lock);

#endif
