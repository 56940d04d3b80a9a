//! What comes over connections.

use kendall_compute::RequestLimits;
use kendall_link::ShapeChange;
use kendall_protocols::load_result::LoadResult;
use kendall_protocols::memcached::{
    Command, Element, Framing, KEY_BYTES, LINE_BYTES, Limits, Parsed, Request, Span, element, keys,
    parse,
};
use kendall_protocols::snapshot::TierSnapshot;
use kendall_stats::histogram::Histogram;

use crate::as_text;

/// Limits that inputs of a few KiB can reach.
const LIMITS: Limits = Limits { value_bytes: 4096, get_line_bytes: 8192 };
const FRAMINGS: [Framing; 5] =
    [Framing::Line, Framing::Values, Framing::Stats, Framing::Meta, Framing::Quiet];

/// A client's bytes: every request of them, and each of them in pieces.
pub(crate) fn memcached_request(bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        match parse(rest, &LIMITS) {
            Parsed::Incomplete(needed) => {
                assert!(needed > rest.len(), "{needed} bytes are there: {}", rest.len());
                return;
            }
            Parsed::Close => return,
            Parsed::Refusal(refusal) => {
                assert!(refusal.consumed > 0 && refusal.consumed <= rest.len());
                if let Some(key) = refusal.forget {
                    assert!(within(key, rest) && key.len() <= KEY_BYTES);
                }
                assert!(refusal.answer.is_empty() || refusal.answer.ends_with(b"\r\n"));
                let swallowed = refusal.swallow.min(rest.len() - refusal.consumed);
                at += refusal.consumed + swallowed;
            }
            Parsed::Request(request) => {
                whole(&request, rest);
                at += request.consumed;
            }
        }
    }
}

/// A request lies in its bytes, and is found whole in no part of them.
fn whole(request: &Request, bytes: &[u8]) {
    let consumed = request.consumed;
    assert!(consumed > 0 && consumed <= bytes.len());
    let own = &bytes[..consumed];
    // A short value of `ms` without its end is left to the server.
    let judged = request.command == Command::MetaSet
        && request.value.is_some_and(|value| value.len() <= LINE_BYTES + 2);
    assert!(judged || own.ends_with(b"\n"));
    let spans = [Some(request.line), Some(request.key), request.value, request.unique];
    for span in spans.into_iter().flatten().chain([request.value_length]) {
        assert!(within(span, own), "{span:?} of {consumed} bytes: {request:?}");
    }
    assert!(request.key.len() <= KEY_BYTES || request.value.is_none(), "{request:?}");
    if let Some(value) = request.value {
        assert!(value.end == consumed && (judged || value.of(own).ends_with(b"\r\n")));
        assert!(value.len() <= LIMITS.value_bytes + 2);
    }
    assert!(keys(request, own).count() <= own.len());
    assert_eq!(parse(own, &LIMITS), Parsed::Request(*request), "what follows changes it");
    for cut in [1, consumed / 3, consumed / 2, consumed - 1] {
        if cut == 0 {
            continue;
        }
        let part = parse(&own[..cut], &LIMITS);
        assert!(
            matches!(part, Parsed::Incomplete(needed) if needed <= consumed),
            "{cut} of {consumed} bytes are {part:?}, all of them {request:?}"
        );
    }
}

fn within(span: Span, bytes: &[u8]) -> bool {
    span.start <= span.end && span.end <= bytes.len()
}

/// A server's bytes; the first says the framing.
pub(crate) fn memcached_reply(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let framing = FRAMINGS[usize::from(*kind) % FRAMINGS.len()];
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let found = element(framing, rest);
        let used = match found {
            Err(_) | Ok(Element::Incomplete) => return,
            Ok(Element::Part(line) | Element::Last { line, .. }) => line,
            Ok(Element::Value { header, data, key, unique, .. }) => {
                let spans = [Some(key), unique];
                assert!(spans.iter().flatten().all(|span| within(*span, &rest[..header])));
                assert!(data >= 2, "a value has its line end");
                header
            }
        };
        assert!(used > 0 && used <= rest.len());
        let part = element(framing, &rest[..used - 1]);
        assert_eq!(part, Ok(Element::Incomplete), "all of it: {found:?}");
        at += used;
    }
}

pub(crate) fn compute_body(bytes: &[u8]) {
    if let Err(problem) = RequestLimits::default().check_body(bytes) {
        assert!((400..500).contains(&problem.status) && !problem.detail.is_empty());
    }
}

pub(crate) fn compute_query(bytes: &[u8]) {
    as_text(bytes, |query| {
        if let Err(problem) = RequestLimits::default().check_query(query) {
            assert!((400..500).contains(&problem.status) && !problem.detail.is_empty());
        }
    });
}

/// A change of a link's shape.
pub(crate) fn link_control(bytes: &[u8]) {
    let Ok(change) = serde_json::from_slice::<ShapeChange>(bytes) else { return };
    let text = serde_json::to_vec(&change).expect("it came from JSON");
    let again: ShapeChange = serde_json::from_slice(&text).expect("what was written is read");
    assert_eq!(again, change);
    if let Ok(shape) = change.applied_to(kendall_link::Shape::default()) {
        assert!(shape.delay.get() >= 0.0);
    }
}

pub(crate) fn queue_tokens(bytes: &[u8]) {
    as_text(bytes, kendall_message_queue::fuzzing::tokens);
}

pub(crate) fn reapi_resource(bytes: &[u8]) {
    as_text(bytes, kendall_build_cluster::cache::fuzzing::resource);
}

pub(crate) fn reapi_path(bytes: &[u8]) {
    as_text(bytes, kendall_build_cluster::worker::fuzzing::path);
}

/// What a tier says of itself, with its histograms.
pub(crate) fn snapshot(bytes: &[u8]) {
    let Ok(snapshot) = serde_json::from_slice::<TierSnapshot>(bytes) else { return };
    let text = serde_json::to_string(&snapshot).expect("it came from JSON");
    let again: TierSnapshot = serde_json::from_str(&text).expect("what was written is read");
    assert_eq!(again, snapshot);
    for request in snapshot.requests.values() {
        for encoded in request.stages.values() {
            Histogram::decode(&encoded.0).map(|found| read(&found)).unwrap_or_default();
        }
    }
}

/// What a load found.
pub(crate) fn load_result(bytes: &[u8]) {
    let Ok(result) = serde_json::from_slice::<LoadResult>(bytes) else { return };
    let text = serde_json::to_string(&result).expect("it came from JSON");
    let again: LoadResult = serde_json::from_str(&text).expect("what was written is read");
    // Numbers that are none, and those that JSON writes otherwise, are equal to nothing.
    let once_more = serde_json::to_string(&again).expect("it came from JSON");
    assert_eq!(once_more, text);
}

/// A histogram as it stands in a result file.
pub(crate) fn histogram(bytes: &[u8]) {
    let Ok(histogram) = Histogram::from_bytes(bytes) else { return };
    let again = Histogram::from_bytes(&histogram.to_bytes()).expect("what was written is read");
    assert_eq!(again.count(), histogram.count());
    assert!(again.cells().eq(histogram.cells()), "it came back otherwise");
    read(&histogram);
}

/// All that is asked of a histogram.
fn read(histogram: &Histogram) {
    let cells: u128 = histogram.cells().map(|(_, _, count)| u128::from(count)).sum();
    assert_eq!(cells, u128::from(histogram.count()));
    let (least, most) = (histogram.min().unwrap_or(0), histogram.max().unwrap_or(0));
    assert!(least <= most);
    for quantile in [0.0, 0.5, 0.99, 1.0] {
        let found = histogram.quantile(quantile).unwrap_or(least);
        assert!((least..=most).contains(&found), "{found} is not in {least}..={most}");
    }
    let mean = histogram.mean().unwrap_or(0.0);
    assert!(mean.is_finite() && mean >= 0.0, "{mean}");
    assert!(histogram.standard_deviation().is_none_or(|deviation| !deviation.is_nan()));
    let mut twice = histogram.clone();
    twice.add(histogram);
}
