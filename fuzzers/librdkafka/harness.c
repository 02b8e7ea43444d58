/* Reads any bytes as the records of a fetch response, as a consumer of librdkafka does.
 *
 * The library has no public function for that. This calls the one that its fetcher calls, so it is compiled inside the
 * library's sources. */
#include "rdkafka_int.h"
#include "rdkafka_broker.h"
#include "rdkafka_msgset.h"
#include "rdkafka_partition.h"

__AFL_FUZZ_INIT();

static void check(int is_well, const char *what)
{
    if (!is_well) {
        fprintf(stderr, "harness: %s failed\n", what);
        exit(2);
    }
}

/* A consumer that checks CRCs and connects to nothing. */
static rd_kafka_t *make_consumer(void)
{
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    /* Nothing is logged: an input that is refused is no news. */
    check(!rd_kafka_conf_set(conf, "log_level", "0", error, sizeof(error)), "log_level");
    check(!rd_kafka_conf_set(conf, "group.id", "fuzz", error, sizeof(error)), "group.id");
    check(!rd_kafka_conf_set(conf, "check.crcs", "true", error, sizeof(error)), "check.crcs");
    return rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof(error));
}

/* A bug to find, so that a test sees whether the fuzzer gets that far: a header and a negative timestamp. */
static void fail_if_planted(const rd_kafka_q_t *records)
{
    const char *is_planted = getenv("KFUZZ_PLANTED");
    if (is_planted == NULL || strcmp(is_planted, "1") != 0)
        return;
    rd_kafka_op_t *op;
    TAILQ_FOREACH(op, &records->rkq_q, rko_link) {
        if (op->rko_type != RD_KAFKA_OP_FETCH || op->rko_err)
            continue;
        rd_kafka_headers_t *headers;
        rd_kafka_message_t *record = rd_kafka_message_get(op);
        if (rd_kafka_message_timestamp(record, NULL) < 0 && !rd_kafka_message_headers(record, &headers))
            abort();
    }
}

static void read_records(const void *data, size_t size, rd_kafka_broker_t *broker, rd_kafka_toppar_t *partition)
{
    struct rd_kafka_toppar_ver version = {.rktp = partition};
    rd_kafka_buf_t *response = rd_kafka_buf_new_shadow(data, size, NULL);
    rd_kafka_broker_keep(broker);
    response->rkbuf_rkb = broker;
    /* Each input is the first one of its partition. */
    partition->rktp_offsets.fetch_pos.offset = 0;
    partition->rktp_fetch_msg_max_bytes = 1 << 20;
    rd_kafka_msgset_parse(response, NULL, partition, NULL, &version);
    fail_if_planted(partition->rktp_fetchq);
    rd_kafka_q_purge(partition->rktp_fetchq);
    rd_kafka_buf_destroy(response);
}

int main(void)
{
    /* AFL++ copies the process here, before librdkafka starts its threads: a copy would not have them. */
    __AFL_INIT();
    unsigned char *data = __AFL_FUZZ_TESTCASE_BUF;
    rd_kafka_t *consumer = make_consumer();
    check(consumer != NULL, "rd_kafka_new");
    rd_kafka_broker_t *broker = rd_kafka_broker_internal(consumer);
    check(broker != NULL, "rd_kafka_broker_internal");
    rd_kafka_toppar_t *partition = rd_kafka_toppar_get2(consumer, "fuzz", 0, rd_false, rd_true);
    check(partition != NULL, "rd_kafka_toppar_get2");
    while (__AFL_LOOP(10000))
        read_records(data, (size_t) __AFL_FUZZ_TESTCASE_LEN, broker, partition);
    return 0;
}
