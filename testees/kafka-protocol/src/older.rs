//! Record batches in versions before 0.15, whose decoder gives the records of all batches at once.

use bytes::Bytes;
#[cfg(since_0_13)]
use kafka_protocol::records::Compression;
use kafka_protocol::records::RecordBatchDecoder;
use kfuzz_testee::contents::Batch;
use kfuzz_testee::{record_json, rejected, unsupported};
#[cfg(since_0_11)]
use kfuzz_testee::{place_in, with_place};
use serde_json::{json, Value};

pub fn read(mut data: Bytes) -> Value {
    #[cfg(not(since_0_13))]
    let decoded = RecordBatchDecoder::decode(&mut data);
    #[cfg(all(since_0_13, not(since_0_14)))]
    let decoded = RecordBatchDecoder::decode(&mut data, None::<fn(&mut Bytes, Compression) -> _>);
    #[cfg(since_0_14)]
    let decoded = RecordBatchDecoder::decode::<_, fn(&mut Bytes, Compression) -> _>(&mut data);
    match decoded {
        Ok(records) => {
            let records = records.iter().map(|record| {
                let headers = record.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref()));
                record_json(record.offset, record.timestamp, record.key.as_deref(), record.value.as_deref(), headers)
            });
            json!({"outcome": "accepted", "records": records.collect::<Vec<_>>()})
        }
        #[cfg(since_0_11)]
        Err(error) => with_place(rejected(format!("{error:#}")), place_in(error.backtrace())),
        #[cfg(not(since_0_11))]
        Err(error) => rejected(format!("{error:#}")),
    }
}

pub fn write(_: &[Batch]) -> Value {
    unsupported("the writer of this version")
}
