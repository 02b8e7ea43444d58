//! The responses of rskafka, as its messenger reads them. They are public only with the feature `unstable-fuzzing`.
//! Requests are left out: the library writes them, but its types lack fields that Kafka has.

use kfuzz_testee::{bytes, hex, rejected, text, unsupported, BadRequest, Request};
use rskafka::protocol::api_version::ApiVersion;
use rskafka::protocol::error::Error;
use rskafka::protocol::messages::*;
use rskafka::protocol::primitives::*;
use serde_json::{json, Map, Value};
use std::io::Cursor;

/// The value of a field in the protocol's JSON form.
trait Form {
    fn show(&self) -> Value;
}

macro_rules! forms {
    ($($kind:ty: $value:ident => $shown:expr;)*) => {
        $(impl Form for $kind { fn show(&self) -> Value { let $value = self; $shown } })*
    };
}

forms! {
    Boolean: value => json!(value.0);
    Int32: value => json!(value.0);
    Int64: value => json!(value.0.to_string());
    String_: value => json!(value.0);
    NullableString: value => json!(value.0);
    CompactNullableString: value => json!(value.0);
    Bytes: value => json!(hex(&value.0));
}

impl<T: Form> Form for Vec<T> {
    fn show(&self) -> Value {
        self.iter().map(Form::show).collect()
    }
}

impl<T: Form> Form for Array<T> {
    fn show(&self) -> Value {
        self.0.as_ref().map_or(Value::Null, Form::show)
    }
}

fn code(error: Option<Error>) -> Value {
    json!(Int16::from(error).0)
}

fn tags(fields: &Option<TaggedFields>) -> Value {
    let shown = |(tag, data): &(UnsignedVarint, Vec<u8>)| json!({"tag": tag.0, "hex": hex(data)});
    fields.iter().flat_map(|fields| fields.0.iter().map(shown)).collect()
}

/// A struct: Kafka's name of each field, then that of its error code, then the unknown tagged fields if it has any.
macro_rules! structs {
    ($($kind:ty { $($name:literal: $part:ident),* } $(error $error:literal: $code:ident)? $(tags $tags:ident)?;)*) => {
        $(impl Form for $kind {
            fn show(&self) -> Value {
                let mut shown = Map::new();
                $(put(&mut shown, $name, &self.$part);)*
                $(shown.insert($error.into(), code(self.$code));)?
                $(
                    let tags = tags(&self.$tags);
                    if tags != json!([]) { shown.insert("_unknownTaggedFields".into(), tags); }
                )?
                shown.into()
            }
        })*
    };
}

/// A field that a version may lack.
trait Field {
    fn field(&self) -> Option<Value>;
}

impl<T: Form> Field for Option<T> {
    fn field(&self) -> Option<Value> {
        self.as_ref().map(Form::show)
    }
}

macro_rules! fields {
    ($($kind:ty),*) => { $(impl Field for $kind { fn field(&self) -> Option<Value> { Some(self.show()) } })* };
}

fields!(Boolean, Int32, Int64, String_, NullableString, CompactNullableString, Bytes);

impl<T: Form> Field for Vec<T> {
    fn field(&self) -> Option<Value> {
        Some(self.show())
    }
}

impl<T: Form> Field for Array<T> {
    fn field(&self) -> Option<Value> {
        Some(self.show())
    }
}

fn put(shown: &mut Map<String, Value>, name: &str, part: &impl Field) {
    if let Some(value) = part.field() {
        shown.insert(name.into(), value);
    }
}

impl Form for ApiVersionsResponseApiKey {
    fn show(&self) -> Value {
        let mut shown = json!({
            "apiKey": Int16::from(self.api_key).0, "minVersion": self.min_version.0 .0, "maxVersion": self.max_version.0 .0
        });
        let tags = tags(&self.tagged_fields);
        if tags != json!([]) {
            shown["_unknownTaggedFields"] = tags;
        }
        shown
    }
}

structs! {
    ApiVersionsResponse { "apiKeys": api_keys, "throttleTimeMs": throttle_time_ms } error "errorCode": error_code;
    CreateTopicsResponse { "throttleTimeMs": throttle_time_ms, "topics": topics } tags tagged_fields;
    CreateTopicResponse { "name": name, "errorMessage": error_message } error "errorCode": error;
    DeleteRecordsResponse { "throttleTimeMs": throttle_time_ms, "topics": topics } tags tagged_fields;
    DeleteResponseTopic { "name": name, "partitions": partitions } tags tagged_fields;
    DeleteResponsePartition { "partitionIndex": partition_index, "lowWatermark": low_watermark }
        error "errorCode": error tags tagged_fields;
    DeleteTopicsResponse { "throttleTimeMs": throttle_time_ms, "responses": responses } tags tagged_fields;
    DeleteTopicsResponseTopic { "name": name, "errorMessage": error_message } error "errorCode": error tags tagged_fields;
    FetchResponse { "throttleTimeMs": throttle_time_ms, "responses": responses };
    FetchResponseTopic { "topic": topic, "partitions": partitions };
    FetchResponsePartition {
        "partitionIndex": partition_index, "highWatermark": high_watermark, "lastStableOffset": last_stable_offset,
        "abortedTransactions": aborted_transactions
    } error "errorCode": error_code;
    FetchResponseAbortedTransaction { "producerId": producer_id, "firstOffset": first_offset };
    ListOffsetsResponse { "throttleTimeMs": throttle_time_ms, "topics": topics };
    ListOffsetsResponseTopic { "name": name, "partitions": partitions };
    ListOffsetsResponsePartition {
        "partitionIndex": partition_index, "oldStyleOffsets": old_style_offsets, "timestamp": timestamp, "offset": offset
    } error "errorCode": error_code;
    MetadataResponse {
        "throttleTimeMs": throttle_time_ms, "brokers": brokers, "clusterId": cluster_id, "controllerId": controller_id,
        "topics": topics
    };
    MetadataResponseBroker { "nodeId": node_id, "host": host, "port": port, "rack": rack };
    MetadataResponseTopic { "name": name, "isInternal": is_internal, "partitions": partitions } error "errorCode": error;
    MetadataResponsePartition {
        "partitionIndex": partition_index, "leaderId": leader_id, "replicaNodes": replica_nodes, "isrNodes": isr_nodes
    } error "errorCode": error;
    ProduceResponse { "responses": responses, "throttleTimeMs": throttle_time_ms };
    ProduceResponseResponse { "name": name, "partitionResponses": partition_responses };
    ProduceResponsePartitionResponse {
        "index": index, "baseOffset": base_offset, "logAppendTimeMs": log_append_time_ms,
        "logStartOffset": log_start_offset
    } error "errorCode": error;
    SaslAuthenticateResponse {
        "errorMessage": error_message, "authBytes": auth_bytes, "sessionLifetimeMs": session_lifetime_ms
    } error "errorCode": error_code tags tagged_fields;
    SaslHandshakeResponse { "mechanisms": mechanisms } error "errorCode": error_code;
}

type Read = fn(&mut Cursor<Vec<u8>>, ApiVersion) -> Result<Value, ReadVersionedError>;

fn read_one<T: ReadVersionedType<Cursor<Vec<u8>>> + Form>(
    data: &mut Cursor<Vec<u8>>,
    version: ApiVersion,
) -> Result<Value, ReadVersionedError> {
    T::read_versioned(data, version).map(|message| message.show())
}

/// Each response with its versions. Version 5 of CreateTopicsResponse is missing: there the library drops nulls.
const KINDS: [(&str, i16, i16, Read); 10] = [
    ("ApiVersionsResponse", 0, 3, read_one::<ApiVersionsResponse>),
    ("CreateTopicsResponse", 0, 4, read_one::<CreateTopicsResponse>),
    ("DeleteRecordsResponse", 0, 2, read_one::<DeleteRecordsResponse>),
    ("DeleteTopicsResponse", 0, 5, read_one::<DeleteTopicsResponse>),
    ("FetchResponse", 4, 4, read_one::<FetchResponse>),
    ("ListOffsetsResponse", 0, 3, read_one::<ListOffsetsResponse>),
    ("MetadataResponse", 0, 4, read_one::<MetadataResponse>),
    ("ProduceResponse", 3, 7, read_one::<ProduceResponse>),
    ("SaslAuthenticateResponse", 0, 2, read_one::<SaslAuthenticateResponse>),
    ("SaslHandshakeResponse", 1, 1, read_one::<SaslHandshakeResponse>),
];

pub fn versions() -> Value {
    KINDS.iter().map(|(name, low, high, _)| ((*name).to_owned(), json!([low, high]))).collect()
}

/// Of records, the library keeps what it has decoded. Its response of ApiVersions has the known tagged fields as bytes.
pub fn hidden() -> Value {
    json!({
        "ApiVersionsResponse":
            ["supportedFeatures", "finalizedFeaturesEpoch", "finalizedFeatures", "zkMigrationReady"],
        "FetchResponse": ["responses.partitions.records"],
    })
}

pub fn read(request: &Request) -> Result<Value, BadRequest> {
    let name = text(request, "message")?;
    let version = request.get("version").and_then(Value::as_i64);
    let found = KINDS.iter().find(|(kind, low, high, _)| {
        *kind == name && version.is_some_and(|version| (i64::from(*low)..=i64::from(*high)).contains(&version))
    });
    let (Some((_, _, _, read)), Some(version)) = (found, version) else {
        return Ok(unsupported("no such message or version"));
    };
    let mut data = Cursor::new(bytes(request, "hex")?);
    Ok(match read(&mut data, ApiVersion(Int16(version as i16))) {
        Ok(message) => json!({"outcome": "accepted", "message": message, "consumed": data.position()}),
        Err(error) => rejected(error),
    })
}
