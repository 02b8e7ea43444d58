use bytes::{Buf, Bytes};
use kafka_protocol::records::RecordBatchDecoder;
use kfuzz_vectors::{run, Options, Record};

fn decode(data: &[u8]) -> Result<Vec<Record>, String> {
    let mut left = Bytes::copy_from_slice(data);
    let mut records = Vec::new();
    while left.has_remaining() {
        let set = RecordBatchDecoder::decode(&mut left).map_err(|error| error.to_string())?;
        records.extend(set.records.into_iter().map(|one| Record {
            offset: one.offset,
            timestamp: one.timestamp,
            key: one.key.map(Into::into),
            value: one.value.map(Into::into),
            headers: one.headers.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_deref().map(<[u8]>::to_vec))).collect(),
        }));
    }
    Ok(records)
}

#[test]
fn kafka_protocol_reads_the_vectors() {
    let matching = [
        "records/v2/codec/gzip", "records/v2/codec/snappy", "records/v2/codec/lz4", "records/v2/codec/zstd",
        "records/v2/header/minimal", "records/v2/header/base-offset-beyond-32-bits",
    ];
    let report = run(decode, &Options { matching: matching.map(String::from).to_vec(), ..Options::default() });
    report.check();
    assert_eq!(report.passed.len(), matching.len());
}
