//! Answers of the message queue as JSON with stable keys, and for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kendall_protocols::queue as wire;
use serde_json::{Value, json};

use crate::output::plain;
use crate::text::{self, grid};

/// Characters of a name in a table.
const NAME: usize = 40;

pub(super) fn statistics(queue_id: u64, told: &wire::QueueStatisticsResponse) -> Value {
    let some = |value: u64| (value != 0).then_some(value);
    json!({
        "queue_id": queue_id,
        "name": told.name,
        "waiting": told.waiting,
        "leased": told.leased,
        "delayed": told.delayed,
        "counted_up_to": told.count_limit,
        "oldest_age_ms": told.oldest_age_ms,
        "max_deliveries": some(u64::from(told.max_deliveries)),
        "dead_letter_queue_id": some(told.dead_letter_queue_id),
        "retention_ms": some(told.retention_ms),
        "archive_ms": some(told.archive_ms),
        "paused": told.paused,
    })
}

pub(super) fn message(message: &wire::Message) -> Value {
    json!({
        "message_id": message.message_id,
        "sender_id": message.sender_id,
        "receiver_id": (message.receiver_id != 0).then_some(message.receiver_id),
        "priority": message.priority,
        "deliveries": message.deliveries,
        "sent_at_us": message.sent_at_us,
        "content": message.content,
        "data_base64": (!message.data.is_empty()).then(|| STANDARD.encode(&message.data)),
        "headers": message.headers,
        "dead_letter": message.dead_letter.as_ref().map(dead_letter),
    })
}

fn dead_letter(dead: &wire::DeadLetter) -> Value {
    json!({
        "origin_queue_id": dead.origin_queue_id,
        "receiver_id": (dead.receiver_id != 0).then_some(dead.receiver_id),
        "reason": dead.reason,
        "deliveries": dead.deliveries,
        "died_at_us": dead.died_at_us,
    })
}

pub(super) fn listed(queues: &BTreeMap<String, u64>) -> Value {
    let row = |(name, queue_id)| json!({ "queue_id": queue_id, "name": name });
    json!({ "queues": queues.iter().map(row).collect::<Vec<Value>>() })
}

pub(super) fn human(answer: &Value) -> String {
    if let Some(found) = answer.get("message") {
        return if found.is_null() { "no message".into() } else { received(answer, found) };
    }
    for (key, columns) in [("dead_letters", &LETTERS[..]), ("archived", &ARCHIVED[..])] {
        if let Some(rows) = answer.get(key).and_then(Value::as_array) {
            return if rows.is_empty() { "none".into() } else { table(rows, columns) };
        }
    }
    if let Some(queues) = answer.get("queues").and_then(Value::as_array) {
        return if queues.is_empty() { "no queues".into() } else { table(queues, &LISTED) };
    }
    if answer.get("counted_up_to").is_some() {
        return held(answer);
    }
    let mut text = String::new();
    for (key, value) in answer.as_object().into_iter().flatten() {
        fact(&mut text, key, value);
    }
    text
}

/// What the queues hold, as a table.
pub(super) fn watched(queues: &[Value], not_shown: usize) -> String {
    let mut text =
        if queues.is_empty() { "no queues\n".to_owned() } else { table(queues, &WATCHED) };
    if not_shown > 0 {
        let more = kendall_units::counted(not_shown, "more queue");
        writeln!(text, "and {more}; name those to watch").unwrap_or_default();
    }
    text
}

type Column = (&'static str, fn(&Value) -> String);

const LISTED: [Column; 2] =
    [("id", |queue| cell(&queue["queue_id"])), ("queue", |queue| short(&cell(&queue["name"])))];

const LETTERS: [Column; 6] = [
    ("id", |letter| cell(&letter["message_id"])),
    ("from", |letter| cell(&letter["sender_id"])),
    ("died in", |letter| cell(&letter["dead_letter"]["origin_queue_id"])),
    ("died at", |letter| utc(letter["dead_letter"]["died_at_us"].as_i64().unwrap_or_default())),
    ("why", |letter| short(&cell(&letter["dead_letter"]["reason"]))),
    ("content", |letter| short(&cell(&letter["content"]))),
];

const ARCHIVED: [Column; 5] = [
    ("id", |kept| cell(&kept["message"]["message_id"])),
    ("taken by", |kept| cell(&kept["taken_by"])),
    ("how", |kept| cell(&kept["how"])),
    ("at", |kept| utc(kept["done_at_us"].as_i64().unwrap_or_default())),
    ("content", |kept| short(&cell(&kept["message"]["content"]))),
];

const WATCHED: [Column; 5] = [
    ("queue", |queue| short(&cell(&queue["name"]))),
    ("waiting", |queue| counted(queue, "waiting")),
    ("leased", |queue| counted(queue, "leased")),
    ("delayed", |queue| counted(queue, "delayed")),
    ("oldest", |queue| age(queue).unwrap_or_default()),
];

fn table(rows: &[Value], columns: &[Column]) -> String {
    let header: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let rows = rows.iter().map(|row| columns.iter().map(|(_, value)| value(row)).collect());
    format!("{}\n", text::table(&grid(&header, rows)))
}

/// Facts first, then the content as it is, so that the longest comes last.
fn received(answer: &Value, message: &Value) -> String {
    let mut text = String::new();
    for key in ["message_id", "sender_id", "receiver_id", "priority", "deliveries"] {
        fact(&mut text, key, &message[key]);
    }
    let sent = utc(message["sent_at_us"].as_i64().unwrap_or_default());
    fact(&mut text, "sent", &Value::String(sent));
    fact(&mut text, "lease_id", &answer["lease_id"]);
    for (name, value) in message["headers"].as_object().into_iter().flatten() {
        fact(&mut text, &format!("header {}", plain(name)), value);
    }
    let dead = &message["dead_letter"];
    for key in ["reason", "origin_queue_id"] {
        fact(&mut text, key, &dead[key]);
    }
    text.push('\n');
    text.push_str(&plain(message["content"].as_str().unwrap_or_default()));
    if let Some(data) = message["data_base64"].as_str() {
        text.push_str(data);
    }
    text
}

fn held(queue: &Value) -> String {
    let mut text = String::new();
    for key in ["name", "queue_id"] {
        fact(&mut text, key, &queue[key]);
    }
    for key in ["waiting", "leased", "delayed"] {
        fact(&mut text, key, &Value::String(counted(queue, key)));
    }
    fact(&mut text, "oldest", &age(queue).into());
    fact(&mut text, "max_deliveries", &queue["max_deliveries"]);
    fact(&mut text, "dead_letter_queue_id", &queue["dead_letter_queue_id"]);
    fact(&mut text, "retention", &queue["retention_ms"].as_u64().map(duration).into());
    fact(&mut text, "archive", &queue["archive_ms"].as_u64().map(duration).into());
    if queue["paused"] == true {
        fact(&mut text, "paused", &queue["paused"]);
    }
    text
}

/// A line, unless there is nothing to say.
fn fact(text: &mut String, key: &str, value: &Value) {
    if !value.is_null() {
        writeln!(text, "{key:<20} {}", cell(value)).unwrap_or_default();
    }
}

fn counted(queue: &Value, key: &str) -> String {
    let count = queue[key].as_u64().unwrap_or_default();
    let most = queue["counted_up_to"].as_u64().unwrap_or(u64::MAX);
    if count >= most { format!("{count} or more") } else { count.to_string() }
}

/// A value on one line.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text).replace('\n', "\u{fffd}"),
        value => value.to_string(),
    }
}

/// Age of the oldest message that waits, if one does.
fn age(queue: &Value) -> Option<String> {
    queue["oldest_age_ms"].as_u64().filter(|ms| *ms > 0).map(duration)
}

fn short(text: &str) -> String {
    if text.chars().count() <= NAME {
        return text.to_owned();
    }
    text.chars().take(NAME - 1).chain(['…']).collect()
}

fn duration(ms: u64) -> String {
    let (seconds, tenths) = (ms / 1000, ms % 1000 / 100);
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds}.{tenths} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Microseconds since 1970 as a date and time.
fn utc(microseconds: i64) -> String {
    let date = kendall_units::utc(microseconds.div_euclid(1_000_000));
    format!("{date}.{:03} UTC", microseconds.rem_euclid(1_000_000) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_a_date_and_a_time() {
        for (microseconds, date) in [
            (0, "1970-01-01 00:00:00.000 UTC"),
            (951_827_696_789_000, "2000-02-29 12:34:56.789 UTC"),
            (4_107_542_399_999_999, "2100-02-28 23:59:59.999 UTC"),
            (4_107_542_400_000_000, "2100-03-01 00:00:00.000 UTC"),
            (-1, "1969-12-31 23:59:59.999 UTC"),
        ] {
            assert_eq!(utc(microseconds), date);
        }
    }

    #[test]
    fn what_a_message_holds_does_nothing_to_a_terminal() {
        let message = json!({ "message_id": 1, "content": "a\u{1b}[31m\nb\u{9b}c\u{7}\td" });
        let text = human(&json!({ "message": message }));
        assert!(text.ends_with("\n\na\u{fffd}[31m\nb\u{fffd}c\u{fffd}\td"), "{text}");
        let listed = human(&listed(&BTreeMap::from([("two\nlines".to_owned(), 1)])));
        assert!(listed.contains("two\u{fffd}lines"), "{listed}");
    }

    #[test]
    fn a_count_that_reached_its_limit_says_so() {
        let queue = json!({ "name": "jobs", "waiting": 10, "leased": 9, "counted_up_to": 10 });
        let text = human(&queue);
        assert!(text.contains("10 or more") && !text.contains("9 or more"), "{text}");
    }
}
