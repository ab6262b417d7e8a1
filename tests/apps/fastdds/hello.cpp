// A Fast DDS publisher and subscriber of one keyless type, written against the library alone: what
// an application of another vendor looks like to the gateway. Built by tests/apps/fastdds/build.py.
//
//   hello pub TOPIC COUNT INTERVAL_MS [READERS]   waits for its readers, writes, stays until told
//   hello sub TOPIC COUNT SECONDS                 prints what it receives, one JSON line a sample
#include <fastcdr/Cdr.h>
#include <fastcdr/FastBuffer.h>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

using namespace eprosima::fastdds::dds;
using eprosima::fastcdr::Cdr;
using eprosima::fastcdr::FastBuffer;
using Clock = std::chrono::steady_clock;

namespace {

struct HelloWorld {
    uint32_t index = 0;
    std::string message;
};

// What fastddsgen would write for: struct HelloWorld { unsigned long index; string message; };
class HelloWorldType : public TopicDataType {
public:
    HelloWorldType() {
        setName("HelloWorld");
        m_typeSize = 4 /* encapsulation */ + 4 + 4 + 1024;
        m_isGetKeyDefined = false;
    }

    bool serialize(void* data, eprosima::fastrtps::rtps::SerializedPayload_t* payload) override {
        auto* sample = static_cast<HelloWorld*>(data);
        FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->max_size);
        Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, Cdr::DDS_CDR);
        payload->encapsulation =
            cdr.endianness() == Cdr::BIG_ENDIANNESS ? CDR_BE : CDR_LE;
        cdr.serialize_encapsulation();
        cdr << sample->index << sample->message;
        payload->length = static_cast<uint32_t>(cdr.getSerializedDataLength());
        return true;
    }

    bool deserialize(eprosima::fastrtps::rtps::SerializedPayload_t* payload, void* data) override {
        auto* sample = static_cast<HelloWorld*>(data);
        FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->length);
        Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, Cdr::DDS_CDR);
        cdr.read_encapsulation();
        cdr >> sample->index >> sample->message;
        return true;
    }

    std::function<uint32_t()> getSerializedSizeProvider(void* data) override {
        auto* sample = static_cast<HelloWorld*>(data);
        return [sample] { return static_cast<uint32_t>(4 + 4 + 4 + sample->message.size() + 1); };
    }

    void* createData() override { return new HelloWorld; }
    void deleteData(void* data) override { delete static_cast<HelloWorld*>(data); }

    bool getKey(void*, eprosima::fastrtps::rtps::InstanceHandle_t*, bool) override {
        return false;
    }
};

volatile std::sig_atomic_t is_told_to_leave = 0;

int publish(Publisher* publisher, Topic* topic, int argc, char** argv) {
    const int count = std::atoi(argv[3]);
    const int interval_ms = std::atoi(argv[4]);
    const int readers = argc > 5 ? std::atoi(argv[5]) : 1;
    DataWriterQos qos;
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.history().kind = KEEP_ALL_HISTORY_QOS;
    DataWriter* writer = publisher->create_datawriter(topic, qos);
    if (writer == nullptr) {
        return 1;
    }
    std::printf("{\"event\": \"ready\"}\n");
    PublicationMatchedStatus matched;
    const auto end = Clock::now() + std::chrono::seconds(30);
    do {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        writer->get_publication_matched_status(matched);
        if (Clock::now() > end) {
            std::printf("{\"event\": \"unmatched\"}\n");
            return 1;
        }
    } while (matched.current_count < readers);
    std::printf("{\"event\": \"matched\"}\n");
    for (int index = 0; index < count; ++index) {
        HelloWorld sample;
        sample.index = static_cast<uint32_t>(index);
        sample.message = "hello " + std::to_string(index);
        if (!writer->write(&sample)) {
            return 1;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(interval_ms));
    }
    std::printf("{\"event\": \"done\", \"count\": %d}\n", count);
    while (!is_told_to_leave) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return 0;
}

int subscribe(Subscriber* subscriber, Topic* topic, char** argv) {
    const int count = std::atoi(argv[3]);
    const int seconds = std::atoi(argv[4]);
    DataReaderQos qos;
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.history().kind = KEEP_ALL_HISTORY_QOS;
    DataReader* reader = subscriber->create_datareader(topic, qos);
    if (reader == nullptr) {
        return 1;
    }
    std::printf("{\"event\": \"ready\"}\n");
    int received = 0;
    const auto end = Clock::now() + std::chrono::seconds(seconds);
    while (received < count && Clock::now() < end) {
        reader->wait_for_unread_message({0, 50'000'000});
        HelloWorld sample;
        SampleInfo info;
        while (reader->take_next_sample(&sample, &info) == ReturnCode_t::RETCODE_OK) {
            if (info.valid_data) {
                ++received;
                std::printf(
                    "{\"event\": \"sample\", \"index\": %u, \"message\": \"%s\","
                    " \"timestamp\": %lld}\n",
                    sample.index, sample.message.c_str(),
                    static_cast<long long>(info.source_timestamp.to_ns()));
            }
        }
    }
    std::printf("{\"event\": \"leaving\", \"received\": %d}\n", received);
    return received >= count ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::signal(SIGTERM, [](int) { is_told_to_leave = 1; });
    if (argc < 5) {
        std::fprintf(stderr, "usage: hello pub|sub TOPIC COUNT INTERVAL_MS|SECONDS [READERS]\n");
        return 2;
    }
    auto* factory = DomainParticipantFactory::get_instance();
    DomainParticipant* participant = factory->create_participant(0, PARTICIPANT_QOS_DEFAULT);
    if (participant == nullptr) {
        return 1;
    }
    TypeSupport type(new HelloWorldType);
    type.register_type(participant);
    Topic* topic = participant->create_topic(argv[2], "HelloWorld", TOPIC_QOS_DEFAULT);
    const int code =
        topic == nullptr ? 1
        : std::strcmp(argv[1], "pub") == 0
            ? publish(participant->create_publisher(PUBLISHER_QOS_DEFAULT), topic, argc, argv)
            : subscribe(participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT), topic, argv);
    participant->delete_contained_entities();
    factory->delete_participant(participant);
    return code;
}
