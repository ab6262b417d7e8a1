/* The least that an express path could take: the hops its samples make, with nothing but sockets in between.
   A publisher sends datagrams to `out`, which writes each on a TCP connection to `in`, which sends it as a
   datagram to the subscriber, whose receiving thread wakes another one, as DDS does. Used by the latency
   benchmark.

     hops pub PORT COUNT INTERVAL_US       to this port of 127.0.0.1
     hops out PORT HOST TCP_PORT
     hops in  TCP_PORT PORT
     hops sub PORT COUNT WARM_UP           prints latencies in µs: median, 99th percentile, most */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 130, MOST = 1000000, PATIENCE_S = 60 };

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void need(int is_fine, const char *what)
{
    if (!is_fine) {
        perror(what);
        exit(1);
    }
}

static struct sockaddr_in address(const char *host, const char *port)
{
    struct sockaddr_in found = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    need(inet_aton(host, &found.sin_addr), host);
    return found;
}

static int receiver(const char *port)
{
    int made = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = address("127.0.0.1", port);
    need(bind(made, (struct sockaddr *)&here, sizeof here) == 0, "bind");
    return made;
}

static void at_once(int connection)
{
    int on = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void publish(const char *port, int count, int64_t interval_us)
{
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = address("127.0.0.1", port);
    char sample[SIZE] = {0};
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (int number = 0; number < count; number++) {
        due.tv_nsec += interval_us * 1000;
        due.tv_sec += due.tv_nsec / 1000000000;
        due.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        int64_t sent = now_ns();
        memcpy(sample, &sent, sizeof sent);
        sendto(out, sample, sizeof sample, 0, (struct sockaddr *)&to, sizeof to);
    }
}

static void leave_lan(const char *port, const char *host, const char *tcp_port)
{
    int from = receiver(port), to;
    struct sockaddr_in there = address(host, tcp_port);
    char sample[SIZE];
    for (int tried = 0;; tried++) {
        to = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(to, (struct sockaddr *)&there, sizeof there) == 0)
            break;
        need(tried < PATIENCE_S * 100, "connect");
        close(to);
        usleep(10000);
    }
    at_once(to);
    puts("ready");
    fflush(stdout);
    for (ssize_t got; (got = recv(from, sample, sizeof sample, 0)) > 0;)
        need(send(to, sample, (size_t)got, 0) == got, "send");
}

static void enter_lan(const char *tcp_port, const char *port)
{
    int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1, out = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = address("0.0.0.0", tcp_port), to = address("127.0.0.1", port);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    need(bind(listening, (struct sockaddr *)&here, sizeof here) == 0, "bind");
    listen(listening, 1);
    int from = accept(listening, NULL, NULL);
    need(from >= 0, "accept");
    at_once(from);
    char sample[SIZE];
    while (recv(from, sample, sizeof sample, MSG_WAITALL) == sizeof sample)
        sendto(out, sample, sizeof sample, 0, (struct sockaddr *)&to, sizeof to);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static int64_t sent_at[MOST]; /* of samples that have arrived */
static int arrived;

static void *receive(void *from)
{
    char sample[SIZE];
    while (recv(*(int *)from, sample, sizeof sample, 0) > 0) {
        pthread_mutex_lock(&lock);
        if (arrived < MOST)
            memcpy(&sent_at[arrived++], sample, sizeof sent_at[0]);
        pthread_cond_signal(&news);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static int by_size(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static void subscribe(const char *port, int count, int warm_up)
{
    static int64_t taken[MOST];
    static int from;
    from = receiver(port);
    need(count < MOST && warm_up < count, "COUNT");
    pthread_t thread;
    pthread_create(&thread, NULL, receive, &from);
    puts("ready");
    fflush(stdout);
    for (int number = 0; number < count; number++) {
        pthread_mutex_lock(&lock);
        while (arrived <= number)
            pthread_cond_wait(&news, &lock);
        taken[number] = now_ns() - sent_at[number];
        pthread_mutex_unlock(&lock);
    }
    int64_t *counted = taken + warm_up;
    size_t left = (size_t)(count - warm_up);
    qsort(counted, left, sizeof *counted, by_size);
    printf("latency %.1f %.1f %.1f\n", (double)counted[left / 2] / 1e3,
           (double)counted[left * 99 / 100] / 1e3, (double)counted[left - 1] / 1e3);
}

int main(int count, char **words)
{
    if (count == 5 && strcmp(words[1], "pub") == 0)
        publish(words[2], atoi(words[3]), atoi(words[4]));
    else if (count == 5 && strcmp(words[1], "out") == 0)
        leave_lan(words[2], words[3], words[4]);
    else if (count == 4 && strcmp(words[1], "in") == 0)
        enter_lan(words[2], words[3]);
    else if (count == 5 && strcmp(words[1], "sub") == 0)
        subscribe(words[2], atoi(words[3]), atoi(words[4]));
    else
        return 2;
    return 0;
}
