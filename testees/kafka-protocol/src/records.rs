//! Record batches: the loop of the library's `decode_all`, and its encoder.
//!
//! The loop is here so that the good batches before a bad one are shown. `decode_all` throws them away.

use bytes::{Buf, Bytes, BytesMut};
use indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
#[cfg(since_0_18)]
use kafka_protocol::records::BatchDecodeInfo;
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, RecordSet, TimestampType,
};
use kfuzz_testee::contents::{Batch, CODECS};
use kfuzz_testee::{hex, place_in, record_json, rejected, unsupported, with_batches, with_place};
use serde_json::{json, Value};

const COMPRESSIONS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

pub fn read(data: Bytes) -> Value {
    let mut left = data.clone();
    let mut batches = Vec::new();
    while left.has_remaining() {
        let start = data.len() - left.len();
        match RecordBatchDecoder::decode(&mut left) {
            Ok(set) => batches.push(batch_json(&set, data.slice(start..data.len() - left.len()))),
            Err(error) => {
                let answer = with_place(rejected(format!("{error:#}")), place_in(error.backtrace()));
                return with_batches(answer, batches);
            }
        }
    }
    json!({"outcome": "accepted", "batches": batches, "consumed": data.len()})
}

fn batch_json(set: &RecordSet, bytes: Bytes) -> Value {
    let records = set.records.iter().map(|record| {
        let headers = record.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref()));
        record_json(record.offset, record.timestamp, record.key.as_deref(), record.value.as_deref(), headers)
    });
    let mut shown = json!({"magic": set.version, "records": records.collect::<Vec<_>>()});
    #[cfg(since_0_16)]
    {
        shown["compression"] = CODECS[set.compression as usize].into();
    }
    show_header(bytes, &mut shown);
    shown
}

/// Older versions do not show it.
#[cfg(not(since_0_18))]
fn show_header(_: Bytes, _: &mut Value) {}

/// The library shows a batch's header by another function than its records.
#[cfg(since_0_18)]
fn show_header(mut bytes: Bytes, shown: &mut Value) {
    if let Ok([info]) = RecordBatchDecoder::decode_batch_info(&mut bytes).as_deref() {
        show_info(info, shown);
    }
}

#[cfg(since_0_18)]
fn show_info(info: &BatchDecodeInfo, shown: &mut Value) {
    shown["base_offset"] = info.min_offset.to_string().into();
    shown["timestamp_type"] = timestamp_type_name(info.timestamp_type).into();
    shown["transactional"] = info.transactional.into();
    shown["control"] = info.control.into();
    shown["producer_id"] = info.producer_id.to_string().into();
    shown["producer_epoch"] = info.producer_epoch.into();
    shown["base_sequence"] = info.base_sequence.into();
    shown["partition_leader_epoch"] = info.partition_leader_epoch.into();
    // The library tells whether there is a delete horizon, but not when it is.
    if !info.delete_horizon {
        shown["delete_horizon"] = Value::Null;
    }
}

#[cfg(since_0_18)]
fn timestamp_type_name(kind: TimestampType) -> &'static str {
    match kind {
        TimestampType::Creation => "create",
        TimestampType::LogAppend => "log-append",
    }
}

pub fn write(batches: &[Batch]) -> Value {
    let mut written = BytesMut::new();
    for batch in batches {
        let records = match expressed(batch) {
            Ok(records) => records,
            Err(reason) => return unsupported(reason),
        };
        let options = RecordEncodeOptions { version: 2, compression: COMPRESSIONS[batch.codec] };
        if let Err(error) = RecordBatchEncoder::encode(&mut written, &records, &options) {
            return with_place(rejected(format!("{error:#}")), place_in(error.backtrace()));
        }
    }
    json!({"outcome": "accepted", "hex": hex(&written)})
}

/// The records in the library's own type, or what this type cannot express. The encoder makes the batch from them.
fn expressed(batch: &Batch) -> Result<Vec<Record>, &'static str> {
    if batch.magic != 2 {
        return Err("the library writes magic 2");
    }
    if batch.delete_horizon.is_some() {
        return Err("the encoder sets a delete horizon's flag, but not its time");
    }
    let offsets = || batch.records.iter().map(|record| record.offset);
    if offsets().min() != Some(batch.base_offset) || offsets().max() != Some(batch.last_offset) {
        return Err("the offsets of a batch are those of its records");
    }
    batch
        .records
        .iter()
        .map(|record| {
            let mut headers = IndexMap::new();
            for (key, value) in &record.headers {
                let key = StrBytes::from_utf8(key.clone().into()).map_err(|_| "a header's key must be UTF-8")?;
                if headers.insert(key, value.clone().map(Bytes::from)).is_some() {
                    return Err("headers are a map: no key repeats");
                }
            }
            Ok(Record {
                transactional: batch.transactional,
                control: batch.control,
                #[cfg(since_0_18)]
                delete_horizon: false,
                partition_leader_epoch: batch.partition_leader_epoch,
                producer_id: batch.producer_id,
                producer_epoch: batch.producer_epoch,
                timestamp_type: if batch.log_append { TimestampType::LogAppend } else { TimestampType::Creation },
                offset: record.offset,
                // As the decoder counts it. The encoder begins a new batch where offset minus sequence changes.
                sequence: batch.base_sequence.wrapping_add(record.offset.wrapping_sub(batch.base_offset) as i32),
                timestamp: record.timestamp.ok_or("a record has a timestamp")?,
                key: record.key.clone().map(Bytes::from),
                value: record.value.clone().map(Bytes::from),
                headers,
            })
        })
        .collect()
}
