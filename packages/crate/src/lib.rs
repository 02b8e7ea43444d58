//! Shows the kfuzz vectors to a decoder of Kafka record batches, and says which of them fail.

use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;

const EMBEDDED: &str = include_str!("vectors.json");

/// What a consumer gets. `None` is null; an empty key or value is not.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Says which vectors are shown. The default shows all except bombs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Ids, or the folders they are in, such as `records/v2/codec`. Empty means all.
    pub matching: Vec<String>,
    /// What the decoder supports. Vectors that need more are skipped. Empty means all.
    pub codecs: Vec<String>,
    pub magics: Vec<u8>,
    /// The ids that fail, each with the reason. One that passes is a failure, so that the list stays true.
    pub expected: BTreeMap<String, String>,
    /// A folder with the bytes of the vectors that are too large for this crate, which `kfuzz vectors copy --bombs`
    /// makes by their recipes. Without it they are skipped.
    pub bombs: Option<PathBuf>,
}

/// What was shown: the ids that passed, those that were skipped with the reason, and those that failed with the problem.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub passed: Vec<String>,
    pub skipped: Vec<(String, String)>,
    pub failed: Vec<(String, String)>,
}

impl Report {
    /// Panic with the list of all failures, if there is one, or if nothing was shown.
    pub fn check(&self) {
        assert!(!self.passed.is_empty() || !self.skipped.is_empty(), "no vector matches");
        let lines: Vec<String> = self.failed.iter().map(|(id, problem)| format!("{id}: {problem}")).collect();
        assert!(lines.is_empty(), "{} vectors fail:\n{}", lines.len(), lines.join("\n"));
    }
}

#[derive(Deserialize)]
struct Suite {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    verdict: String,
    hex: Option<String>,
    recipe: Option<String>,
    sha256: Option<String>,
    codecs: Vec<String>,
    magics: Vec<u8>,
    records: Option<Vec<Stated>>,
}

#[derive(Deserialize)]
struct Stated {
    offset: String,
    timestamp: String,
    key: Option<String>,
    value: Option<String>,
    headers: Vec<(String, Option<String>)>,
}

/// Show each vector to `decode`, which returns the records in the batches of a fetch, or an error if a consumer must not
/// read them. Records of control batches are left out. A panic fails the vector alone.
pub fn run<E: std::fmt::Display>(decode: impl Fn(&[u8]) -> Result<Vec<Record>, E>, options: &Options) -> Report {
    let suite: Suite = serde_json::from_str(EMBEDDED).expect("vectors.json is whole");
    let mut report = Report::default();
    for id in options.expected.keys().filter(|id| suite.vectors.iter().all(|vector| &vector.id != *id)) {
        report.failed.push((id.clone(), "there is no such vector, and it is expected to fail".into()));
    }
    for vector in suite.vectors.into_iter().filter(|vector| matches(&vector.id, &options.matching)) {
        if let Some(reason) = missing(&vector, options) {
            report.skipped.push((vector.id, reason));
            continue;
        }
        let problem = bytes_of(&vector, options).map_or_else(Some, |data| judge(&vector, &decode, &data));
        match (options.expected.get(&vector.id), problem) {
            (Some(why), None) => report.failed.push((vector.id, format!("passes, but is expected to fail: {why}"))),
            (Some(why), Some(problem)) => report.skipped.push((vector.id, format!("fails as expected: {why} ({problem})"))),
            (None, Some(problem)) => report.failed.push((vector.id, problem)),
            (None, None) => report.passed.push(vector.id),
        }
    }
    report
}

fn matches(id: &str, matching: &[String]) -> bool {
    let inside = |one: &String| id.strip_prefix(one.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    matching.is_empty() || matching.iter().any(inside)
}

fn missing(vector: &Vector, options: &Options) -> Option<String> {
    let codec = vector.codecs.iter().find(|one| !options.codecs.is_empty() && !options.codecs.contains(one));
    let magic = vector.magics.iter().find(|one| !options.magics.is_empty() && !options.magics.contains(one));
    if let Some(codec) = codec {
        return Some(format!("needs codec {codec}"));
    }
    if let Some(magic) = magic {
        return Some(format!("needs magic {magic}"));
    }
    (vector.recipe.is_some() && options.bombs.is_none()).then(|| "is a bomb, and the options name no folder of bombs".into())
}

fn bytes_of(vector: &Vector, options: &Options) -> Result<Vec<u8>, String> {
    let (Some(recipe), Some(bombs)) = (&vector.recipe, &options.bombs) else {
        return Ok(unhex(vector.hex.as_deref().unwrap_or_default()));
    };
    let path = bombs.join(format!("{recipe}.bin"));
    let data = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if Some(hex(&Sha256::digest(&data))) != vector.sha256 {
        return Err(format!("{recipe}.bin holds other bytes; make it again with `kfuzz vectors copy --bombs`"));
    }
    Ok(data)
}

/// Says what is wrong with the decoder's answer; returns `None` if it is right.
fn judge<E: std::fmt::Display>(
    vector: &Vector, decode: &impl Fn(&[u8]) -> Result<Vec<Record>, E>, data: &[u8],
) -> Option<String> {
    let records = match catch_unwind(AssertUnwindSafe(|| decode(data))) {
        Err(fault) => {
            let said = fault.downcast_ref::<String>().cloned();
            return Some(format!("panic: {}", said.or(fault.downcast_ref::<&str>().map(|one| one.to_string())).unwrap_or_default()));
        }
        Ok(Err(error)) => return (vector.verdict == "valid").then(|| format!("refused, but it is valid: {error}")),
        Ok(Ok(_)) if vector.verdict == "invalid" => return Some("accepted, but it is invalid".into()),
        Ok(Ok(records)) => records,
    };
    let stated = vector.records.as_ref()?;
    if records.len() != stated.len() {
        return Some(format!("{} records, expected {}", records.len(), stated.len()));
    }
    let want = stated.iter().map(|one| Record {
        offset: one.offset.parse().unwrap_or_default(),
        timestamp: one.timestamp.parse().unwrap_or_default(),
        key: one.key.as_deref().map(unhex),
        value: one.value.as_deref().map(unhex),
        headers: one.headers.iter().map(|(name, value)| (unhex(name), value.as_deref().map(unhex))).collect(),
    });
    let different = records.iter().zip(want).enumerate().find(|(_, (have, want))| *have != want)?;
    let (i, (have, want)) = different;
    Some(format!("record {i} is {have:.300?}, expected {want:.300?}"))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap_or_default()).collect()
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(_: &[u8]) -> Result<Vec<Record>, &'static str> {
        Err("no")
    }

    #[test]
    fn invalid_vectors_may_be_refused_and_valid_ones_not() {
        let report = run(refuse, &Options::default());
        assert!(report.passed.contains(&"records/v2/count/negative-one".to_string()));
        assert!(report.failed.iter().any(|(id, _)| id == "records/v2/header/minimal"));
        assert!(report.skipped.iter().any(|(_, why)| why.contains("bomb")));
    }

    #[test]
    fn what_is_accepted_must_be_right() {
        let empty = |_: &[u8]| Ok::<_, String>(vec![]);
        let report = run(empty, &Options::default());
        assert!(report.failed.iter().any(|(id, why)| id == "records/v2/count/negative-one" && why.contains("invalid")));
        assert!(report.failed.iter().any(|(id, why)| id == "records/v2/header/minimal" && why.contains("expected")));
    }

    #[test]
    fn failures_are_expected_as_long_as_they_fail() {
        let minimal = "records/v2/header/minimal".to_string();
        let mut options = Options { matching: vec![minimal.clone()], ..Options::default() };
        options.expected.insert(minimal, "it refuses everything".into());
        run(refuse, &options).check();
        options.matching = vec!["records/v2/count/negative-one".into()];
        options.expected.insert("records/v2/count/negative-one".into(), "?".into());
        assert!(run(refuse, &options).failed[0].1.starts_with("passes, but"));
    }

    #[test]
    fn a_panic_fails_its_vector_alone() {
        let panics = |_: &[u8]| -> Result<Vec<Record>, String> { panic!("x") };
        let report = run(panics, &Options { matching: vec!["records/v2/header/minimal".into()], ..Options::default() });
        assert_eq!(report.failed[0].1, "panic: x");
    }
}
