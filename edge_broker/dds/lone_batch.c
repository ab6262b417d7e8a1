/* How a batch of one sample is written and read without protobuf's library (proto/tunnel.proto has
   the contract, gateway/tunnel/frames.py does it in Python). Called by outward.c and inward.c. */

#include "lone_batch.h"

bool copy(blob *into, const Py_buffer *from)
{
    if (from->len > MOST_HEAD / 2)
        return false;
    memcpy(into->bytes, from->buf, (size_t)from->len);
    into->size = (size_t)from->len;
    return true;
}

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

size_t encode(uint8_t *record, const blob *to, const blob *stream, uint64_t first,
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
    if (sent_ns)
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

/* Other text is for protobuf to judge. */
static bool is_ascii(text what)
{
    while (what.at < what.end && *what.at < 0x80)
        what.at++;
    return what.at == what.end;
}

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

bool read_frame(text frame, lone *found)
{
    text envelope, batch, to;
    if (!get_envelope(frame, &envelope))
        return false;
    memset(found, 0, sizeof *found);
    found->payload = (text){envelope.end, frame.end};
    uint64_t tag;
    while (envelope.at < envelope.end && get(&envelope, &tag)) {
        if (tag == TO) {
            if (!get_octets(&envelope, &to) || !is_ascii(to))
                return false;
        } else {
            return tag == BATCH && get_octets(&envelope, &batch) &&
                   envelope.at == envelope.end && read_batch(batch, found);
        }
    }
    return false;
}
