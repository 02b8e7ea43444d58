//! The batches of an `encode-records` request.

use crate::{unhex, BadRequest, Request};
use serde_json::Value;

/// The codecs by Kafka's ids.
pub const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

pub struct Batch {
    pub base_offset: i64,
    pub last_offset: i64,
    pub magic: i64,
    pub codec: usize,
    pub log_append: bool,
    pub transactional: bool,
    pub control: bool,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub partition_leader_epoch: i32,
    pub delete_horizon: Option<i64>,
    pub records: Vec<Record>,
}

pub struct Record {
    pub offset: i64,
    /// None in magic 0, which has no timestamps.
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// The key is bytes, because it need not be UTF-8.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

pub fn batches(request: &Request) -> Result<Vec<Batch>, BadRequest> {
    let batches = request.get("batches").and_then(Value::as_array);
    let parsed: Option<Vec<Batch>> = batches.and_then(|batches| batches.iter().map(batch).collect());
    parsed.ok_or_else(|| BadRequest("batches have another form".into()))
}

/// The records of a `produce` request.
pub fn records(request: &Request) -> Result<Vec<Record>, BadRequest> {
    let records = request.get("records").and_then(Value::as_array);
    let parsed: Option<Vec<Record>> = records.and_then(|records| records.iter().map(record).collect());
    parsed.ok_or_else(|| BadRequest("records have another form".into()))
}

fn batch(json: &Value) -> Option<Batch> {
    let codec = json["compression"].as_str()?;
    Some(Batch {
        base_offset: int64(&json["base_offset"])?,
        last_offset: int64(&json["last_offset"])?,
        magic: json["magic"].as_i64()?,
        codec: CODECS.iter().position(|name| *name == codec)?,
        log_append: json["timestamp_type"] == "log-append",
        transactional: json["transactional"].as_bool()?,
        control: json["control"].as_bool()?,
        producer_id: int64(&json["producer_id"])?,
        producer_epoch: json["producer_epoch"].as_i64()?.try_into().ok()?,
        base_sequence: json["base_sequence"].as_i64()?.try_into().ok()?,
        partition_leader_epoch: json["partition_leader_epoch"].as_i64()?.try_into().ok()?,
        delete_horizon: or_null(&json["delete_horizon"], int64)?,
        records: json["records"].as_array()?.iter().map(record).collect::<Option<_>>()?,
    })
}

fn record(json: &Value) -> Option<Record> {
    let headers = json["headers"].as_array()?.iter().map(header);
    Some(Record {
        // A record to produce has no offset yet.
        offset: json.get("offset").map_or(Some(0), int64)?,
        timestamp: or_null(&json["timestamp"], int64)?,
        key: or_null(&json["key"], octets)?,
        value: or_null(&json["value"], octets)?,
        headers: headers.collect::<Option<_>>()?,
    })
}

fn header(json: &Value) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let key = match &json[0] {
        Value::String(text) => text.clone().into_bytes(),
        other => octets(&other["hex"])?,
    };
    Some((key, or_null(&json[1], octets)?))
}

fn int64(json: &Value) -> Option<i64> {
    json.as_str()?.parse().ok()
}

fn octets(json: &Value) -> Option<Vec<u8>> {
    unhex(json.as_str()?)
}

/// `Some(None)` for null, `None` for a wrong form.
fn or_null<T>(json: &Value, parse: impl Fn(&Value) -> Option<T>) -> Option<Option<T>> {
    if json.is_null() {
        Some(None)
    } else {
        parse(json).map(Some)
    }
}
