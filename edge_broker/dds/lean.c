/* Samples of the Python binding in one piece of memory. The binding makes four of each, and takes MD5 of its
   key; here that is one piece, used again and again, and a hash that suits a table. Everything else is done by
   the binding. What is known of memory is that of Cyclone DDS 11.0.1 and its binding: lean() is called for these
   only. Contract-tested. */

#include "bulk.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* ------------------------------------------------------------ what they know of samples */

typedef struct serdata serdata;
typedef struct sertype sertype;
typedef struct fragment fragment;
enum kind { EMPTY, KEY, DATA };

typedef struct {
    void *alike, *size;
    serdata *(*from_ser)(const sertype *, enum kind, const fragment *, size_t);
    serdata *(*from_ser_iov)(const sertype *, enum kind, size_t, const struct iovec *, size_t);
    void *from_keyhash;
    serdata *(*from_sample)(const sertype *, enum kind, const container *);
    void *to_ser, *to_ser_ref, *to_ser_unref, *to_sample, *to_untyped, *untyped_to_sample;
    void (*free)(serdata *);
} operations; /* the first of them */

struct sertype {
    const void *type_operations;
    const operations *operations;
    uint32_t hash;
    uint32_t flags, representations;
    char *name;
    void *domain;
    uint32_t references;
    const void *base;
    uint32_t size;
    uint64_t properties;
    /* of the binding */
    PyObject *python_type;
    bool is_keyless, is_long_key_1, is_long_key_2;
    void *information;
    uint32_t information_size;
    void *types;
    uint32_t types_size;
    uint64_t description[];
};

struct serdata {
    const operations *operations;
    uint32_t hash;
    _Atomic uint32_t references;
    enum kind kind;
    const sertype *type;
    int64_t time;
    uint32_t status;
    int64_t written;
    void *loan;
    /* of the binding */
    uint8_t *data;
    size_t size;
    uint8_t *key;
    size_t key_size;
    bool is_xcdr2;
};

typedef struct {
    uint32_t references;
    void *last;
    bool is_traced;
    void *buffer, *next;
    int64_t size;
    uint8_t bytes[];
} message;

struct fragment {
    const message *message;
    const fragment *next;
    uint32_t from, to;
    uint16_t submessage_at, payload_at, keyhash_at;
};

typedef struct {
    void *buffer;
    uint32_t size, at, xcdr;
} stream;

typedef struct {
    void *(*allocate)(size_t);
    void *(*grow)(void *, size_t);
    void (*release)(void *);
} allocator;

enum { XCDR1 = 1, XCDR2 = 2 };
enum { HEADER = 4, LITTLE_ENDIAN_BIT = 1, LAST_OF_XCDR1 = 3 };

static bool (*normalize)(void *, uint32_t, bool, uint32_t, const void *, bool, uint32_t *);
static bool (*key_of_data)(stream *, stream *, const allocator *, const void *);
static void (*key_of_key)(stream *, stream *, int, const allocator *, const void *);
static void (*free_of_binding)(serdata *);

/* ------------------------------------------------------------ pieces */

#define KEY_ROOM 32

/* One that is not in use. */
typedef struct spare {
    struct spare *next;
} spare;

/* Pieces of one size, used again and again. Threads put back what others have taken: who needs one fetches
   all. */
typedef struct {
    size_t size;
    unsigned most;
    _Atomic(spare *) spares;
    atomic_uint count; /* about */
} pool;

enum { POOLS = 2 };
static pool pools[POOLS] = {{.size = 320, .most = 16384}, {.size = 1536, .most = 4096}};
static _Thread_local spare *own[POOLS];

/* POOLS: it is too large for any. */
static size_t pool_for(size_t size)
{
    size_t which = 0;
    while (which < POOLS && pools[which].size < size)
        which++;
    return which;
}

static void *piece(size_t size)
{
    size_t which = pool_for(size);
    if (which == POOLS)
        return malloc(size);
    if (own[which] == NULL) {
        own[which] = atomic_exchange(&pools[which].spares, NULL);
        atomic_store(&pools[which].count, 0);
    }
    spare *found = own[which];
    if (found == NULL)
        return malloc(pools[which].size);
    own[which] = found->next;
    return found;
}

static void put_back(void *used, size_t size)
{
    size_t which = pool_for(size);
    if (which == POOLS || atomic_fetch_add(&pools[which].count, 1) >= pools[which].most) {
        free(used);
        return;
    }
    spare *back = used;
    back->next = atomic_load(&pools[which].spares);
    while (!atomic_compare_exchange_weak(&pools[which].spares, &back->next, back))
        ;
}

static size_t padded(size_t size)
{
    return (size + 7) / 8 * 8;
}

static size_t piece_size(size_t data)
{
    return sizeof(serdata) + padded(data) + KEY_ROOM;
}

static bool is_one_piece(const serdata *which)
{
    return which->data == (const uint8_t *)(which + 1);
}

static uint8_t *key_room(serdata *which)
{
    return (uint8_t *)which + piece_size(which->size) - KEY_ROOM;
}

static void free_sample(serdata *which)
{
    if (!is_one_piece(which)) {
        free_of_binding(which); /* a key it made of one */
        return;
    }
    if (which->key != key_room(which))
        free(which->key);
    put_back(which, piece_size(which->size));
}

/* ------------------------------------------------------------ making them */

static serdata *begin(const sertype *type, enum kind kind, size_t size)
{
    serdata *made = size < HEADER ? NULL : piece(piece_size(size));
    if (made == NULL)
        return NULL;
    *made = (serdata){.operations = type->operations, .kind = kind, .type = type,
                      .time = INT64_MIN, .written = INT64_MIN,
                      .data = (uint8_t *)(made + 1), .size = size};
    atomic_init(&made->references, 1);
    made->key = key_room(made);
    /* Some of it is sent along, and is nobody's business if it is what another sample has left. */
    memset(made->data + size, 0, padded(size) - size);
    return made;
}

/* Keys are put together here. */
static _Thread_local uint8_t bench[256];

static void *grow(void *old, size_t size)
{
    if (old != bench)
        return realloc(old, size);
    void *grown = malloc(size);
    if (grown != NULL)
        memcpy(grown, bench, size < sizeof bench ? size : sizeof bench);
    return grown;
}

static void release(void *what)
{
    if (what != bench)
        free(what);
}

static const allocator at_bench = {malloc, grow, release};

static bool find_key(serdata *of)
{
    const void *description = of->type->description;
    uint32_t size = (uint32_t)of->size - HEADER;
    stream from = {of->data + HEADER, size, 0, of->is_xcdr2 ? XCDR2 : XCDR1};
    stream to = {bench, sizeof bench, 0, XCDR2};
    bool is_found = true;
    if (of->kind == KEY)
        key_of_key(&from, &to, 0, &at_bench, description);
    else
        is_found = key_of_data(&from, &to, &at_bench, description);
    if (is_found && to.at > KEY_ROOM)
        of->key = malloc(to.at);
    is_found = is_found && of->key != NULL;
    if (is_found) {
        of->key_size = to.at;
        memcpy(of->key, to.buffer, to.at);
    } else {
        of->key = key_room(of);
    }
    release(to.buffer);
    return is_found;
}

static uint32_t hash(const uint8_t *key, size_t size)
{
    uint32_t found = 2166136261u;
    for (size_t at = 0; at < size; at++)
        found = (found ^ key[at]) * 16777619u;
    found = (found ^ found >> 16) * 0x85ebca6bu;
    return size ? found ^ found >> 13 : 0;
}

/* With its data in place. NULL: it is malformed. */
static serdata *finish(serdata *made)
{
    uint8_t *encoding = made->data + 1;
    uint32_t size;
    bool is_foreign = !(*encoding & LITTLE_ENDIAN_BIT);
    made->is_xcdr2 = *encoding > LAST_OF_XCDR1;
    if (!normalize(made->data + HEADER, (uint32_t)made->size - HEADER, is_foreign,
                   made->is_xcdr2 ? XCDR2 : XCDR1, made->type->description,
                   made->kind == KEY, &size)) {
        free_sample(made);
        return NULL;
    }
    if (is_foreign)
        *encoding |= LITTLE_ENDIAN_BIT;
    if (!made->type->is_keyless && !find_key(made)) {
        free_sample(made);
        return NULL;
    }
    made->hash = made->type->hash ^ hash(made->key, made->key_size);
    return made;
}

static serdata *from_ser(const sertype *type, enum kind kind, const fragment *next, size_t size)
{
    serdata *made = begin(type, kind, size);
    if (made == NULL)
        return NULL;
    for (uint32_t at = 0; next != NULL; next = next->next) {
        if (next->to <= at)
            continue; /* nothing new */
        const uint8_t *bytes = next->message->bytes + next->payload_at;
        memcpy(made->data + at, bytes + at - next->from, next->to - at);
        at = next->to;
    }
    return finish(made);
}

static serdata *from_ser_iov(const sertype *type, enum kind kind, size_t count,
                             const struct iovec *parts, size_t size)
{
    serdata *made = begin(type, kind, size);
    if (made == NULL)
        return NULL;
    size_t at = 0;
    for (size_t part = 0; part < count && at < size; part++) {
        size_t bytes = parts[part].iov_len < size - at ? parts[part].iov_len : size - at;
        memcpy(made->data + at, parts[part].iov_base, bytes);
        at += bytes;
    }
    return finish(made);
}

static serdata *from_sample(const sertype *type, enum kind kind, const container *sample)
{
    serdata *made = begin(type, kind, sample->size);
    if (made == NULL)
        return NULL;
    memcpy(made->data, sample->bytes, sample->size);
    return finish(made);
}

/* ------------------------------------------------------------ what Python calls */

PyDoc_STRVAR(lean_doc,
             "lean(operations of the binding, dds_stream_normalize, ..._extract_key_from_data,\n"
             "..._extract_key_from_key): samples are made as said in lean.c from now on. Before any\n"
             "is there");

static PyObject *lean(PyObject *self, PyObject *args)
{
    (void)self;
    unsigned long long of_binding, functions[3];
    if (!PyArg_ParseTuple(args, "KKKK", &of_binding, &functions[0], &functions[1], &functions[2]))
        return NULL;
    operations *table = (operations *)(uintptr_t)of_binding;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin_at = (uintptr_t)table / page * page;
    size_t span = (uintptr_t)(table + 1) - begin_at;
    /* The linker protects tables that it has filled in. */
    if (mprotect((void *)begin_at, span, PROT_READ | PROT_WRITE) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    memcpy(&normalize, &functions[0], sizeof normalize);
    memcpy(&key_of_data, &functions[1], sizeof key_of_data);
    memcpy(&key_of_key, &functions[2], sizeof key_of_key);
    free_of_binding = table->free;
    table->from_ser = from_ser;
    table->from_ser_iov = from_ser_iov;
    table->from_sample = from_sample;
    table->free = free_sample;
    mprotect((void *)begin_at, span, PROT_READ);
    Py_RETURN_NONE;
}

PyMethodDef lean_methods[] = {
    {"lean", lean, METH_VARARGS, lean_doc},
    {NULL, NULL, 0, NULL},
};
