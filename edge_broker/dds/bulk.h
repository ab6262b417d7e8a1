/* What bulk.c, outward.c and inward.c share: the functions of Cyclone DDS, which come in as addresses, and
   samples that were taken. */

#ifndef DDSWAN_BULK_H
#define DDSWAN_BULK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>

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

struct dds_functions {
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
    void *(*create_listener)(void *arg);
    int32_t (*on_data)(void *listener, void (*)(int32_t reader, void *), void *arg, bool reset);
    int32_t (*set_listener)(int32_t reader, const void *listener);
    int32_t (*set_guard)(int32_t condition, bool triggered);
};

extern struct dds_functions dds;

/* ------------------------------------------------------------ taking */

/* What DDS has handed out: held by a reference, or a key that is ours (`held` is NULL). */
typedef struct {
    sample_info info;
    struct iovec part;
    void *held;
} sample;

typedef struct {
    sample *samples;
    size_t count, room;
} store;

/* False: there is no memory. */
bool make_room(store *, size_t for_more);
/* Puts up to `most` samples of a reader behind what the store has. Needs no interpreter lock. */
void fill(store *, int32_t reader, uint32_t most, uint32_t mask);
/* Writes only, to instances that live and never died. */
bool is_plain(const store *);
/* What was taken goes back to DDS. */
void let_go(store *);

/* ------------------------------------------------------------ writing */

#define BAD_PARAMETER (-3)
enum { PL_CDR_LE = 3, CDR2_BE = 6, PL_CDR2_LE = 11 };
/* Whether a sample begins with an encoding DDS knows. It writes others, too, but no reader takes them: they
   are asked for again for ever, and everything behind them waits. */
bool is_encoded(const uint8_t *sample, size_t size);

/* ------------------------------------------------------------ outward.c */

extern volatile bool is_any_taken;
/* Aims are set by CLOCK_MONOTONIC. */
int64_t clock_ns(clockid_t which);
/* Sends what a reader that is aimed at has, if that is one sample. Afterwards the reader is empty,
   and this must be accounted for, soon or after a rest; MISSED: nothing was done, or not all. */
enum shot { MISSED, SOON, REST };
enum shot shoot(int32_t reader);
/* Whether this is the condition set when something was taken before the waiting thread woke that
   must be accounted for soon. No longer set, then. */
bool is_alarm(int32_t condition);
/* Whether something may be sent ahead without a wake of the thread that waits, which was last awake
   then. It is to look so often whether what was is late to be accounted for. */
bool has_shot_since(int64_t monotonic_ns);
bool is_late(void);
#define LOOK_NS 20000000
/* How long what was done may wait to be accounted for: who gets the sample needs the processor. */
#define REST_NS 200000
/* What was taken ahead, if anything was, behind what the store has. False: there is no memory. */
bool take_shot(int32_t reader, store *);

extern PyMethodDef outward_methods[];

/* ------------------------------------------------------------ inward.c */

/* Whether this sample was written ahead, and what DDS said. Told once. If not, nothing is any more: another
   copy of what is about to be written may come at any moment. */
bool was_written(int32_t writer, int64_t time, bool is_lone, int32_t *code);

extern PyMethodDef inward_methods[];

/* ------------------------------------------------------------ lean.c */

extern PyMethodDef lean_methods[];

#endif
