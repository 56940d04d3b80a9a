//! What a client may ask for, read from JSON or from a query, and how a refusal explains itself.
//! Pure: bytes in, a task or a problem out.

use serde::{Deserialize, Serialize};

use crate::factor::prime_factors;
use crate::matrix::{Interrupted, MODULUS, Matrix};

/// Bounds of one request. What exceeds them is refused before any work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RequestLimits {
    /// Rows of a matrix.
    pub size: u32,
    /// Exponent of a power.
    pub exponent: u64,
    pub body_bytes: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { size: 1024, exponent: 1_000_000, body_bytes: 16 * 1024 * 1024 }
    }
}

/// What is to be computed, and how much of the result is asked for. Also the key of the cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) task: Task,
    pub(crate) whole: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// `matrix` to the power `exponent`.
    Power { matrix: Source, exponent: u64 },
    /// The primes of an integer.
    Factorize { integer: u64 },
}

/// Where a matrix comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Given(Matrix),
    Seeded { size: usize, seed: u64 },
}

/// A request that is refused: the body of every answer that is not 2xx, as `application/problem+json`
/// (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub status: u16,
    /// A short name that programs may rely on.
    pub title: &'static str,
    /// What was found, what is accepted, what to do.
    pub detail: String,
}

impl Problem {
    pub(crate) fn new(status: u16, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, title, detail: detail.into() }
    }
}

/// The request as it is written, before any check.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    operation: Option<Operation>,
    matrix: Option<Vec<Vec<i64>>>,
    size: Option<u64>,
    seed: Option<u64>,
    exponent: Option<i64>,
    integer: Option<serde_json::Value>,
    result: Option<Extent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Power,
    Factorize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Extent {
    Checksum,
    Whole,
}

/// An accepted form, for the answers that refuse another.
const FORM: &str = r#"{"operation": "power", "size": 100, "seed": 1, "exponent": 20}"#;
const KEYS: &str = "operation, matrix, size, seed, exponent, integer, result";

impl Asked {
    /// Reads the body of a `POST`.
    pub(crate) fn from_json(body: &[u8], limits: &RequestLimits) -> Result<Self, Problem> {
        let wire: Wire = serde_json::from_slice(body).map_err(|error| {
            let detail = format!("{error}; write it like {FORM}");
            if error.is_data() {
                Problem::new(422, "unacceptable-value", detail)
            } else {
                Problem::new(400, "not-json", detail)
            }
        })?;
        wire.checked(limits)
    }

    /// Reads the query of a `GET`.
    pub(crate) fn from_query(query: &str, limits: &RequestLimits) -> Result<Self, Problem> {
        let mut wire = Wire::default();
        let mut seen = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if seen.contains(&key) {
                let detail = format!("`{key}` is given twice; which of them is meant?");
                return Err(Problem::new(422, "repeated-key", detail));
            }
            seen.push(key);
            let value = percent_decoded(value).ok_or_else(|| {
                Problem::new(400, "not-a-query", format!("`{pair}` is not percent-encoded UTF-8"))
            })?;
            wire.set(key, &value)?;
        }
        wire.checked(limits)
    }
}

impl RequestLimits {
    /// Whether a `POST` with this body would be computed.
    pub fn check_body(&self, body: &[u8]) -> Result<(), Problem> {
        Asked::from_json(body, self).map(drop)
    }

    /// Whether a `GET` with this query would be computed.
    pub fn check_query(&self, query: &str) -> Result<(), Problem> {
        Asked::from_query(query, self).map(drop)
    }
}

impl Wire {
    fn set(&mut self, key: &str, value: &str) -> Result<(), Problem> {
        match key {
            "operation" => self.operation = Some(word(key, value, "`power` or `factorize`")?),
            "result" => self.result = Some(word(key, value, "`checksum` or `whole`")?),
            "size" => self.size = Some(number(key, value)?),
            "seed" => self.seed = Some(number(key, value)?),
            "exponent" => self.exponent = Some(number(key, value)?),
            "integer" => self.integer = Some(serde_json::Value::String(value.to_owned())),
            "matrix" => {
                let row = |row: &str| row.split(',').map(|entry| number(key, entry)).collect();
                self.matrix = Some(value.split(';').map(row).collect::<Result<_, _>>()?);
            }
            _ => {
                let detail = format!("there is no `{key}`; the keys are {KEYS}");
                return Err(Problem::new(422, "unknown-key", detail));
            }
        }
        Ok(())
    }

    fn checked(self, limits: &RequestLimits) -> Result<Asked, Problem> {
        let operation = self.operation.unwrap_or(if self.integer.is_some() {
            Operation::Factorize
        } else {
            Operation::Power
        });
        let whole = self.result.unwrap_or(match operation {
            Operation::Power => Extent::Checksum,
            Operation::Factorize => Extent::Whole,
        }) == Extent::Whole;
        let task = match operation {
            Operation::Power => self.power(limits)?,
            Operation::Factorize => self.factorize()?,
        };
        Ok(Asked { task, whole })
    }

    fn power(self, limits: &RequestLimits) -> Result<Task, Problem> {
        if self.integer.is_some() {
            return Err(unwanted("integer", "power"));
        }
        let exponent = self.exponent.ok_or_else(|| missing("exponent", "power"))?;
        let exponent = u64::try_from(exponent).map_err(|_| {
            let detail = format!("exponent {exponent} is negative; it counts multiplications");
            Problem::new(422, "negative-exponent", detail)
        })?;
        if exponent > limits.exponent {
            let detail = format!("exponent {exponent} exceeds {}", limits.exponent);
            return Err(Problem::new(422, "exponent-too-large", detail));
        }
        let matrix = match (self.matrix, self.size) {
            (Some(_), Some(_)) => return Err(unwanted("size", "power with a given matrix")),
            (Some(rows), None) if self.seed.is_none() => Source::Given(given(&rows, limits)?),
            (Some(_), None) => return Err(unwanted("seed", "power with a given matrix")),
            (None, Some(size)) => {
                let size = fitting(usize::try_from(size).unwrap_or(usize::MAX), limits)?;
                Source::Seeded { size, seed: self.seed.unwrap_or(1) }
            }
            (None, None) => return Err(missing("size or matrix", "power")),
        };
        Ok(Task::Power { matrix, exponent })
    }

    fn factorize(self) -> Result<Task, Problem> {
        let others = [
            ("matrix", self.matrix.is_some()),
            ("size", self.size.is_some()),
            ("seed", self.seed.is_some()),
            ("exponent", self.exponent.is_some()),
        ];
        if let Some((key, _)) = others.iter().find(|(_, given)| *given) {
            return Err(unwanted(key, "factorize"));
        }
        let written = self.integer.ok_or_else(|| missing("integer", "factorize"))?;
        let text = match &written {
            serde_json::Value::String(text) => text.trim().to_owned(),
            other => other.to_string(),
        };
        match text.parse::<u64>() {
            Ok(0) | Err(_) => {
                let detail = format!("integer {text} is not a whole number from 1 to {}", u64::MAX);
                Err(Problem::new(422, "not-factorable", detail))
            }
            Ok(integer) => Ok(Task::Factorize { integer }),
        }
    }
}

fn given(rows: &[Vec<i64>], limits: &RequestLimits) -> Result<Matrix, Problem> {
    let size = fitting(rows.len(), limits)?;
    if let Some((index, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != size) {
        let detail = format!(
            "the matrix has {size} rows, but row {index} (counted from 0) has {} entries; \
             a power needs as many columns as rows",
            row.len()
        );
        return Err(Problem::new(422, "not-square", detail));
    }
    Ok(Matrix::new(size, &rows.concat()).expect("every row has as many entries as there are rows"))
}

fn fitting(size: usize, limits: &RequestLimits) -> Result<usize, Problem> {
    match size {
        0 => Err(Problem::new(422, "empty-matrix", "a matrix has at least one row")),
        size if size > limits.size as usize => {
            let detail = format!("a matrix of size {size} exceeds {0}×{0}", limits.size);
            Err(Problem::new(413, "matrix-too-large", detail))
        }
        size => Ok(size),
    }
}

fn missing(key: &str, operation: &str) -> Problem {
    Problem::new(422, "missing-key", format!("{operation} needs {key}; write it like {FORM}"))
}

fn unwanted(key: &str, operation: &str) -> Problem {
    Problem::new(422, "unwanted-key", format!("{operation} takes no {key}; leave it out"))
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, Problem> {
    value.trim().parse().map_err(|_| {
        let detail = format!("{key}: `{value}` is not a whole number in range");
        Problem::new(422, "unacceptable-value", detail)
    })
}

fn word<T: for<'de> Deserialize<'de>>(key: &str, value: &str, form: &str) -> Result<T, Problem> {
    serde_json::from_value(value.into()).map_err(|_| {
        Problem::new(422, "unacceptable-value", format!("{key}: `{value}` is not {form}"))
    })
}

/// `None` for bad escapes and for what is not UTF-8 then.
fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

/// The result as it is sent, and cached.
#[derive(Serialize)]
#[serde(tag = "operation", rename_all = "lowercase")]
enum Outcome<'a> {
    Power {
        size: usize,
        exponent: u64,
        modulus: u32,
        checksum: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        matrix: Option<Vec<&'a [u32]>>,
    },
    Factorize {
        integer: u64,
        checksum: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        factors: Option<&'a [u64]>,
    },
}

impl Asked {
    /// Does the work; `go_on` is asked now and then. The result is JSON.
    pub(crate) fn compute(&self, go_on: impl FnMut() -> bool) -> Result<Vec<u8>, Interrupted> {
        let json = match &self.task {
            Task::Power { matrix, exponent } => {
                let seeded;
                let matrix = match matrix {
                    Source::Given(matrix) => matrix,
                    Source::Seeded { size, seed } => {
                        seeded = Matrix::seeded(*size, *seed);
                        &seeded
                    }
                };
                let power = matrix.power(*exponent, go_on)?;
                serde_json::to_vec(&Outcome::Power {
                    size: power.size(),
                    exponent: *exponent,
                    modulus: MODULUS,
                    checksum: format!("{:016x}", power.checksum()),
                    matrix: self.whole.then(|| power.rows().collect()),
                })
            }
            Task::Factorize { integer } => {
                let factors = prime_factors(*integer, go_on)?;
                serde_json::to_vec(&Outcome::Factorize {
                    integer: *integer,
                    checksum: format!("{:016x}", checksum(&factors)),
                    factors: self.whole.then_some(&factors),
                })
            }
        };
        Ok(json.expect("a result has no map with keys that are not texts"))
    }

    /// Bytes that it takes in memory, as a key of the cache.
    pub(crate) fn bytes(&self) -> usize {
        let matrix = match &self.task {
            Task::Power { matrix: Source::Given(matrix), .. } => matrix.bytes(),
            _ => 0,
        };
        size_of::<Self>() + matrix
    }
}

/// FNV-1a of the factors as little-endian 64-bit numbers.
fn checksum(factors: &[u64]) -> u64 {
    let bytes = factors.iter().flat_map(|factor| factor.to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refusal(body: &str) -> (u16, &'static str) {
        let limits = RequestLimits { size: 3, exponent: 100, ..RequestLimits::default() };
        let problem = Asked::from_json(body.as_bytes(), &limits).unwrap_err();
        assert!(!problem.detail.is_empty());
        (problem.status, problem.title)
    }

    #[test]
    fn each_bad_body_has_its_status_and_its_name() {
        let cases = [
            ("", 400, "not-json"),
            ("{", 400, "not-json"),
            ("[[1, NaN]]", 400, "not-json"),
            ("\u{0}\u{1}\u{ff}", 400, "not-json"),
            (r#"{"matrix": [[1, 2], [3]], "exponent": 1}"#, 422, "not-square"),
            (r#"{"matrix": [[1, 2, 3]], "exponent": 1}"#, 422, "not-square"),
            (r#"{"matrix": [], "exponent": 1}"#, 422, "empty-matrix"),
            (r#"{"size": 0, "exponent": 1}"#, 422, "empty-matrix"),
            (r#"{"matrix": [["NaN"]], "exponent": 1}"#, 422, "unacceptable-value"),
            (r#"{"matrix": [[1.5]], "exponent": 1}"#, 422, "unacceptable-value"),
            (r#"{"matrix": [[1e999]], "exponent": 1}"#, 400, "not-json"),
            (r#"{"matrix": [[null]], "exponent": 1}"#, 422, "unacceptable-value"),
            (r#"{"matrix": [[99999999999999999999]], "exponent": 1}"#, 422, "unacceptable-value"),
            (r#"{"size": 4, "exponent": 1}"#, 413, "matrix-too-large"),
            (r#"{"size": 18446744073709551615, "exponent": 1}"#, 413, "matrix-too-large"),
            (r#"{"size": 2, "exponent": -1}"#, 422, "negative-exponent"),
            (r#"{"size": 2, "exponent": 101}"#, 422, "exponent-too-large"),
            (r#"{"size": 2, "exponent": 1.5}"#, 422, "unacceptable-value"),
            (r#"{"size": 2, "exponent": "1"}"#, 422, "unacceptable-value"),
            (r#"{"size": 2}"#, 422, "missing-key"),
            (r#"{"exponent": 2}"#, 422, "missing-key"),
            (r#"{}"#, 422, "missing-key"),
            (r#"{"size": 2, "exponent": 2, "colour": 1}"#, 422, "unacceptable-value"),
            (r#"{"size": 2, "exponent": 2, "size": 3}"#, 422, "unacceptable-value"),
            (r#"{"size": 2, "matrix": [[1]], "exponent": 2}"#, 422, "unwanted-key"),
            (r#"{"operation": "factorize"}"#, 422, "missing-key"),
            (r#"{"integer": 0}"#, 422, "not-factorable"),
            (r#"{"integer": -7}"#, 422, "not-factorable"),
            (r#"{"integer": 1.5}"#, 422, "not-factorable"),
            (r#"{"integer": 18446744073709551616}"#, 422, "not-factorable"),
            (r#"{"integer": "twelve"}"#, 422, "not-factorable"),
            (r#"{"integer": 12, "exponent": 2}"#, 422, "unwanted-key"),
            (r#"{"operation": "divide", "integer": 12}"#, 422, "unacceptable-value"),
            (r#"{"integer": 12, "result": "some"}"#, 422, "unacceptable-value"),
        ];
        for (body, status, title) in cases {
            assert_eq!(refusal(body), (status, title), "{body}");
        }
    }

    #[test]
    fn a_deeply_nested_body_is_refused_without_harm() {
        assert_eq!(refusal(&"[".repeat(100_000)), (400, "not-json"));
        assert_eq!(refusal(&r#"{"integer":"#.repeat(10_000)).0, 400);
    }

    #[test]
    fn a_query_says_the_same_as_a_body() {
        let limits = RequestLimits::default();
        let pairs = [
            ("size=5&exponent=3&seed=2", r#"{"size": 5, "exponent": 3, "seed": 2}"#),
            ("matrix=1,-2;3,4&exponent=2", r#"{"matrix": [[1, -2], [3, 4]], "exponent": 2}"#),
            ("matrix=1%2C-2%3B3%2C4&exponent=2", r#"{"matrix": [[1, -2], [3, 4]], "exponent": 2}"#),
            ("integer=91&result=checksum", r#"{"integer": 91, "result": "checksum"}"#),
            ("integer=18446744073709551615", r#"{"integer": "18446744073709551615"}"#),
        ];
        for (query, body) in pairs {
            let asked = Asked::from_query(query, &limits).unwrap();
            assert_eq!(asked, Asked::from_json(body.as_bytes(), &limits).unwrap(), "{query}");
        }
    }

    #[test]
    fn a_bad_query_is_refused() {
        let limits = RequestLimits::default();
        let cases = [
            ("", "missing-key"),
            ("size=2&exponent=", "unacceptable-value"),
            ("size=NaN&exponent=1", "unacceptable-value"),
            ("size=2&exponent=%", "not-a-query"),
            ("size=2&exponent=%ff", "not-a-query"),
            ("matrix=1,2;3&exponent=1", "not-square"),
            ("width=2", "unknown-key"),
            ("size=2&exponent=1&size=3", "repeated-key"),
            ("result=some", "unacceptable-value"),
        ];
        for (query, title) in cases {
            assert_eq!(Asked::from_query(query, &limits).unwrap_err().title, title, "{query}");
        }
    }

    #[test]
    fn a_result_carries_what_was_asked_for() {
        let result = |body: &str| -> serde_json::Value {
            let asked = Asked::from_json(body.as_bytes(), &RequestLimits::default()).unwrap();
            serde_json::from_slice(&asked.compute(|| true).unwrap()).unwrap()
        };
        let whole = result(r#"{"matrix": [[1, 1], [1, 0]], "exponent": 10, "result": "whole"}"#);
        assert_eq!(whole["matrix"], serde_json::json!([[89, 55], [55, 34]]));
        let short = result(r#"{"matrix": [[1, 1], [1, 0]], "exponent": 10}"#);
        assert_eq!(
            (short["checksum"].clone(), short.get("matrix")),
            (whole["checksum"].clone(), None)
        );
        assert_eq!(result(r#"{"integer": 91}"#)["factors"], serde_json::json!([7, 13]));
        assert!(result(r#"{"integer": 91, "result": "checksum"}"#).get("factors").is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200), query in ".{0,80}") {
            let limits = RequestLimits::default();
            let refused = [Asked::from_json(&body, &limits).err(), Asked::from_query(&query, &limits).err()];
            prop_assert!(refused.iter().flatten().all(|problem| (400..500).contains(&problem.status)));
        }

        /// Valid requests with one byte changed, cut off or put in: refused or computed, in bounds.
        #[test]
        fn a_damaged_request_is_refused_or_stays_within_its_bounds(
            place in 0..60_usize, byte in any::<u8>(), cut in any::<bool>(),
        ) {
            let limits = RequestLimits { size: 5, exponent: 5, ..RequestLimits::default() };
            let mut body = br#"{"matrix": [[1, 2], [3, 4]], "exponent": 5, "result": "whole"}"#.to_vec();
            if cut { body.truncate(place) } else { body[place] = byte }
            match Asked::from_json(&body, &limits) {
                Ok(asked) => prop_assert!(asked.compute(|| true).is_ok()),
                Err(problem) => prop_assert!((400..500).contains(&problem.status)),
            }
        }
    }
}
