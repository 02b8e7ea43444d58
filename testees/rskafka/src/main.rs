//! rskafka as a testee: reads the records of a fetch response and other responses, and writes batches.
//!
//! The reader is `Records`, the type of the field in rskafka's own fetch response. It is public only with the feature
//! `unstable-fuzzing`. The client then makes user records in a private function, `extract_records`. `records_of` does
//! the same steps with the same types, so that users' records are judged: chrono's range of times and a map of headers.

mod messages;

use kfuzz_testee::contents::{self, Batch, CODECS};
use kfuzz_testee::{bytes, hex, record_json, rejected, text, unsupported, with_batches, BadRequest, Request};
use rskafka::chrono::{DateTime, LocalResult, TimeZone, Utc};
use rskafka::protocol::primitives::Records;
use rskafka::protocol::record::{
    ControlBatchOrRecords, Record, RecordBatch, RecordBatchCompression, RecordBatchTimestampType, RecordHeader,
};
use rskafka::protocol::traits::{ReadType, WriteType};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::io::{self, Cursor};

const VERSION: &str = env!("LIBRARY_VERSION");
/// The base offset and the length field, which does not count itself.
const FRAME_BYTES: usize = 12;

fn main() -> io::Result<()> {
    let handshake = json!({
        "protocol": "kfuzz-testee/1", "name": "rskafka", "version": VERSION, "language": "rust",
        "operations": ["decode-records", "encode-records", "decode-message"], "roles": ["consumer"], "magic": [2], "codecs": CODECS,
        "checks_crc": true, "control": "hidden", "headers": "map", "tails": "ignored",
        "timestamps": {
            "low": DateTime::<Utc>::MIN_UTC.timestamp_millis().to_string(),
            "high": DateTime::<Utc>::MAX_UTC.timestamp_millis().to_string(),
            "resolution_ms": 1,
        },
        "outcomes": ["stalled", "panic"],
        "side": "client", "messages": messages::versions(), "hidden": messages::hidden(),
    });
    kfuzz_testee::serve(handshake, ("rskafka", VERSION), answer)
}

fn answer(request: &Request) -> Result<Value, BadRequest> {
    match text(request, "operation")? {
        "decode-records" if request.get("role").is_none_or(|role| role == "consumer") => {
            Ok(read(&bytes(request, "hex")?))
        }
        "decode-message" => messages::read(request),
        "encode-records" => Ok(write(&contents::batches(request)?)),
        other => Ok(unsupported(format!("operation {other}, or its role"))),
    }
}

// --- reading --------------------------------------------------------------------------------------------------------

fn read(data: &[u8]) -> Value {
    let field = [&(data.len() as i32).to_be_bytes(), data].concat();
    let batches = match Records::read(&mut Cursor::new(field)) {
        Ok(Records(batches)) => batches,
        Err(error) => return rejected(error),
    };
    let consumed = frames(data).take(batches.len()).last().unwrap_or(0);
    let mut shown = Vec::new();
    for batch in batches {
        match batch_json(batch) {
            Ok(batch) => shown.push(batch),
            Err(error) => return with_batches(rejected(error), shown),
        }
    }
    // The reader treats any early end as a batch cut off by the broker. If the batch is whole, the client gets the
    // same bytes at every fetch: no record, no error, and the same offset again.
    if frames(data).any(|end| end > consumed) {
        let error = "the reader took a whole batch for one that is cut off; the consumer would fetch it for ever";
        return with_batches(json!({"outcome": "stalled", "error": error, "consumed": consumed}), shown);
    }
    json!({"outcome": "accepted", "batches": shown, "consumed": consumed})
}

/// The ends of the whole batches, by their length fields.
fn frames(data: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut end = 0;
    std::iter::from_fn(move || {
        let length = data.get(end + 8..end + FRAME_BYTES)?;
        end += FRAME_BYTES + usize::try_from(i32::from_be_bytes(length.try_into().unwrap())).ok()?;
        (end <= data.len()).then_some(end)
    })
}

fn batch_json(batch: RecordBatch) -> Result<Value, String> {
    let codec = match batch.compression {
        RecordBatchCompression::NoCompression => 0,
        RecordBatchCompression::Gzip => 1,
        RecordBatchCompression::Snappy => 2,
        RecordBatchCompression::Lz4 => 3,
        RecordBatchCompression::Zstd => 4,
    };
    let log_append = batch.timestamp_type == RecordBatchTimestampType::LogAppendTime;
    let last_offset = batch.base_offset.wrapping_add(batch.last_offset_delta.into());
    Ok(json!({
        "base_offset": batch.base_offset.to_string(), "last_offset": last_offset.to_string(), "magic": 2,
        "compression": CODECS[codec], "timestamp_type": if log_append { "log-append" } else { "create" },
        "transactional": batch.is_transactional,
        "control": matches!(batch.records, ControlBatchOrRecords::ControlBatch(_)),
        "producer_id": batch.producer_id.to_string(), "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence, "partition_leader_epoch": batch.partition_leader_epoch,
        "records": records_of(batch)?,
    }))
}

fn records_of(batch: RecordBatch) -> Result<Vec<Value>, String> {
    let ControlBatchOrRecords::Records(records) = batch.records else { return Ok(Vec::new()) };
    let shown = records.into_iter().map(|record| {
        let offset = batch.base_offset.wrapping_add(record.offset_delta.into());
        let timestamp = batch.first_timestamp.checked_add(record.timestamp_delta).ok_or("timestamp overflow")?;
        let LocalResult::Single(timestamp) = Utc.timestamp_millis_opt(timestamp) else {
            return Err(format!("not a valid timestamp ({timestamp})"));
        };
        let headers: BTreeMap<String, Vec<u8>> = record.headers.into_iter().map(|h| (h.key, h.value)).collect();
        let headers = headers.iter().map(|(key, value)| (key.as_str(), Some(value.as_slice())));
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        Ok(record_json(offset, timestamp.timestamp_millis(), key, value, headers))
    });
    shown.collect()
}

// --- writing --------------------------------------------------------------------------------------------------------

fn write(batches: &[Batch]) -> Value {
    let mut written = Vec::new();
    for batch in batches {
        let batch = match expressed(batch) {
            Ok(batch) => batch,
            Err(reason) => return unsupported(reason),
        };
        if let Err(error) = batch.write(&mut written) {
            return rejected(error);
        }
    }
    json!({"outcome": "accepted", "hex": hex(&written)})
}

/// The batch in the library's own type, or what this type cannot express.
fn expressed(batch: &Batch) -> Result<RecordBatch, &'static str> {
    if batch.magic != 2 {
        return Err("the library writes magic 2");
    }
    if batch.delete_horizon.is_some() {
        return Err("a batch has no delete horizon");
    }
    if batch.control {
        return Err("the client writes no control batches");
    }
    let timestamps = || batch.records.iter().filter_map(|record| record.timestamp);
    let first_timestamp = timestamps().next().unwrap_or(-1);
    let mut records = Vec::new();
    for record in &batch.records {
        let mut headers = Vec::new();
        for (key, value) in &record.headers {
            let key = String::from_utf8(key.clone()).map_err(|_| "a header's key must be UTF-8")?;
            headers.push(RecordHeader { key, value: value.clone().ok_or("a header's value cannot be null")? });
        }
        let timestamp = record.timestamp.ok_or("a record has a timestamp")?;
        let delta = if batch.log_append { Some(0) } else { timestamp.checked_sub(first_timestamp) };
        records.push(Record {
            timestamp_delta: delta.ok_or("the timestamps are too far apart")?,
            offset_delta: delta_of(record.offset, batch.base_offset)?,
            key: record.key.clone(),
            value: record.value.clone(),
            headers,
        });
    }
    Ok(RecordBatch {
        base_offset: batch.base_offset,
        partition_leader_epoch: batch.partition_leader_epoch,
        last_offset_delta: delta_of(batch.last_offset, batch.base_offset)?,
        first_timestamp,
        max_timestamp: timestamps().max().unwrap_or(-1),
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        base_sequence: batch.base_sequence,
        records: ControlBatchOrRecords::Records(records),
        compression: [
            RecordBatchCompression::NoCompression,
            RecordBatchCompression::Gzip,
            RecordBatchCompression::Snappy,
            RecordBatchCompression::Lz4,
            RecordBatchCompression::Zstd,
        ][batch.codec],
        is_transactional: batch.transactional,
        timestamp_type: match batch.log_append {
            true => RecordBatchTimestampType::LogAppendTime,
            false => RecordBatchTimestampType::CreateTime,
        },
    })
}

fn delta_of(offset: i64, base: i64) -> Result<i32, &'static str> {
    offset.checked_sub(base).and_then(|delta| delta.try_into().ok()).ok_or("the offsets are too far apart")
}
