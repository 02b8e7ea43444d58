//! Messages in kfuzz's JSON form. build.rs lists their fields; the trait `Form` converts the values by their types.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, Message, StrBytes, VersionRange};
use kfuzz_testee::{bytes, hex, place_in, rejected, text, unhex, unsupported, with_place, BadRequest, Request};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

const UNKNOWN_TAGGED_FIELDS: &str = "_unknownTaggedFields";

struct Kind {
    name: &'static str,
    versions: VersionRange,
    read: fn(&mut Bytes, i16) -> Result<Value, Value>,
    write: fn(&Value, i16) -> Result<BytesMut, Value>,
}

pub fn versions() -> Value {
    let kinds = KINDS.iter().filter(|kind| !kind.versions.is_empty());
    kinds.map(|kind| (kind.name.to_owned(), json!([kind.versions.min, kind.versions.max]))).collect()
}

pub fn read(request: &Request) -> Result<Value, BadRequest> {
    let Some((kind, version)) = kind_of(request)? else { return Ok(unsupported("no such message or version")) };
    let data = Bytes::from(bytes(request, "hex")?);
    let mut left = data.clone();
    Ok(match (kind.read)(&mut left, version) {
        Ok(message) => json!({"outcome": "accepted", "message": message, "consumed": data.len() - left.len()}),
        Err(refusal) => refusal,
    })
}

pub fn write(request: &Request) -> Result<Value, BadRequest> {
    let Some((kind, version)) = kind_of(request)? else { return Ok(unsupported("no such message or version")) };
    let body = request.get("body").ok_or_else(|| BadRequest("body is missing".into()))?;
    Ok(match (kind.write)(body, version) {
        Ok(written) => json!({"outcome": "accepted", "hex": hex(&written)}),
        Err(refusal) => refusal,
    })
}

fn kind_of(request: &Request) -> Result<Option<(&'static Kind, i16)>, BadRequest> {
    let name = text(request, "message")?;
    let version = request.get("version").and_then(Value::as_i64).and_then(|version| version.try_into().ok());
    let version = version.ok_or_else(|| BadRequest("version must be an int16".into()))?;
    let has = |kind: &&Kind| kind.name == name && (kind.versions.min..=kind.versions.max).contains(&version);
    Ok(KINDS.iter().find(has).map(|kind| (kind, version)))
}

/// The error is an answer.
fn read_one<T: Decodable + Form>(data: &mut Bytes, version: i16) -> Result<Value, Value> {
    match T::decode(data, version) {
        Ok(message) => Ok(message.show(version)),
        Err(error) => Err(with_place(rejected(format!("{error:#}")), place_in(error.backtrace()))),
    }
}

fn write_one<T: Encodable + Form>(body: &Value, version: i16) -> Result<BytesMut, Value> {
    let mut written = BytesMut::new();
    match T::take(body).map_err(rejected)?.encode(&mut written, version) {
        Ok(()) => Ok(written),
        Err(error) => Err(with_place(rejected(format!("{error:#}")), place_in(error.backtrace()))),
    }
}

/// A type of the library whose values have a JSON form.
trait Form: Sized {
    fn show(&self, version: i16) -> Value;
    /// The error says what the type cannot hold, such as a null where the library has no `Option`.
    fn take(form: &Value) -> Result<Self, String>;
}

macro_rules! structure {
    ($structure:path, $($field:ident $name:literal $low:literal $high:literal,)* [$($tags:ident)?]) => {
        impl Form for $structure {
            fn show(&self, version: i16) -> Value {
                let mut shown = Map::new();
                $(if ($low..=$high).contains(&version) {
                    shown.insert($name.into(), self.$field.show(version));
                })*
                $(show_tags(&self.$tags, &mut shown);)?
                let _ = version; // some structures have no field
                shown.into()
            }

            fn take(form: &Value) -> Result<Self, String> {
                let mut made = Self::default();
                for (name, value) in form.as_object().ok_or_else(|| refused("a struct", form))? {
                    match name.as_str() {
                        $($name => made.$field = Form::take(value).map_err(|error| format!("{name}: {error}"))?,)*
                        $(UNKNOWN_TAGGED_FIELDS => made.$tags = take_tags(value)?,)?
                        _ => return Err(format!("no field {name}")),
                    }
                }
                Ok(made)
            }
        }
    };
}

macro_rules! messages {
    ($($name:ident = $structure:path,)*) => {
        static KINDS: &[Kind] = &[$(Kind {
            name: stringify!($name),
            versions: <$structure as Message>::VERSIONS,
            read: read_one::<$structure>,
            write: write_one::<$structure>,
        },)*];
    };
}

include!(concat!(env!("OUT_DIR"), "/structures.rs"));

fn refused(wanted: &str, form: &Value) -> String {
    format!("{form:.100} is not {wanted}")
}

/// The library holds a tag as an i32, but a tag is unsigned.
fn show_tags(tags: &BTreeMap<i32, Bytes>, shown: &mut Map<String, Value>) {
    if !tags.is_empty() {
        let tags = tags.iter().map(|(tag, data)| json!({"tag": *tag as u32, "hex": hex(data)}));
        shown.insert(UNKNOWN_TAGGED_FIELDS.into(), tags.collect());
    }
}

fn take_tags(form: &Value) -> Result<BTreeMap<i32, Bytes>, String> {
    let wrong = || refused("a list of tagged fields", form);
    let pairs = form.as_array().ok_or_else(wrong)?.iter().map(|field| {
        let tag = field["tag"].as_u64().and_then(|tag| u32::try_from(tag).ok()).ok_or_else(wrong)?;
        Ok((tag as i32, Bytes::take(&field["hex"])?))
    });
    pairs.collect()
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Form for $integer {
            fn show(&self, _version: i16) -> Value {
                (*self).into()
            }

            fn take(form: &Value) -> Result<Self, String> {
                let number = form.as_i64().and_then(|number| number.try_into().ok());
                number.ok_or_else(|| refused(stringify!($integer), form))
            }
        }
    )*};
}

integers! { i8 i16 u16 i32 u32 }

/// The library's own types for ids and names, each around a simpler type.
macro_rules! wrappers {
    ($($wrapper:ident)*) => {$(
        impl Form for $wrapper {
            fn show(&self, version: i16) -> Value {
                self.0.show(version)
            }

            fn take(form: &Value) -> Result<Self, String> {
                Form::take(form).map(Self)
            }
        }
    )*};
}

wrappers! { BrokerId GroupId ProducerId TopicName TransactionalId }

impl Form for bool {
    fn show(&self, _version: i16) -> Value {
        (*self).into()
    }

    fn take(form: &Value) -> Result<Self, String> {
        form.as_bool().ok_or_else(|| refused("a bool", form))
    }
}

impl Form for i64 {
    fn show(&self, _version: i16) -> Value {
        self.to_string().into()
    }

    fn take(form: &Value) -> Result<Self, String> {
        form.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| refused("an int64", form))
    }
}

impl Form for f64 {
    fn show(&self, _version: i16) -> Value {
        match self {
            number if number.is_nan() => "NaN".into(),
            number if number.is_infinite() => if *number > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            number => (*number).into(),
        }
    }

    fn take(form: &Value) -> Result<Self, String> {
        match form.as_str() {
            Some("NaN") => Ok(f64::NAN),
            Some("Infinity") => Ok(f64::INFINITY),
            Some("-Infinity") => Ok(f64::NEG_INFINITY),
            _ => form.as_f64().ok_or_else(|| refused("a float64", form)),
        }
    }
}

impl Form for StrBytes {
    fn show(&self, _version: i16) -> Value {
        self.as_str().into()
    }

    fn take(form: &Value) -> Result<Self, String> {
        form.as_str().map(|text| text.to_owned().into()).ok_or_else(|| refused("a string", form))
    }
}

impl Form for Bytes {
    fn show(&self, _version: i16) -> Value {
        hex(self).into()
    }

    fn take(form: &Value) -> Result<Self, String> {
        form.as_str().and_then(unhex).map(Bytes::from).ok_or_else(|| refused("bytes", form))
    }
}

/// Kafka's text of a uuid is its 128 bits in base64 for URLs, without padding: 21 digits of 6 bits, then 2 bits.
impl Form for Uuid {
    fn show(&self, _version: i16) -> Value {
        let bits = self.as_u128();
        let digits = (0..21).map(|at| bits >> (122 - 6 * at)).chain([bits << 4]);
        digits.map(|digit| BASE64[digit as usize & 63] as char).collect::<String>().into()
    }

    fn take(form: &Value) -> Result<Self, String> {
        let wrong = || refused("a uuid", form);
        let digit = |byte: u8| BASE64.iter().position(|one| *one == byte).map(|at| at as u128);
        let digits: Option<Vec<u128>> = form.as_str().ok_or_else(wrong)?.bytes().map(digit).collect();
        let digits = digits.filter(|digits| digits.len() == 22).ok_or_else(wrong)?;
        let bits = digits[..21].iter().fold(0, |bits, digit| bits << 6 | digit);
        Ok(Uuid::from_u128(bits << 2 | digits[21] >> 4))
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl<T: Form> Form for Option<T> {
    fn show(&self, version: i16) -> Value {
        self.as_ref().map_or(Value::Null, |value| value.show(version))
    }

    fn take(form: &Value) -> Result<Self, String> {
        if form.is_null() {
            Ok(None)
        } else {
            T::take(form).map(Some)
        }
    }
}

impl<T: Form> Form for Vec<T> {
    fn show(&self, version: i16) -> Value {
        self.iter().map(|element| element.show(version)).collect()
    }

    fn take(form: &Value) -> Result<Self, String> {
        form.as_array().ok_or_else(|| refused("an array", form))?.iter().map(T::take).collect()
    }
}
