//! What the console reads, a page at a time.
//!
//! Rows are read in the order of their ids, at most so many for a page, and an answer says where the next
//! page begins: for a rare word among a million messages the browser asks page by page, and each costs
//! PostgreSQL little.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::Row;

use super::{Answered, Asked, Console, Failure};

/// Rows on one page, and rows read for it.
const ROWS: i64 = 50;
const LOOKED_AT: i64 = 20_000;
/// Counts of a page stop here.
const COUNTED: i64 = 10_000;
/// Characters of a search.
const SEARCH: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PageOf {
    /// Continue after this id.
    after: i64,
    /// Part of a name or of a content.
    search: String,
    /// Messages only: down from the highest id.
    newest_first: bool,
    /// Names or ids; empty for any.
    queue: String,
    sender: String,
    receiver: String,
}

pub(super) async fn overview(State(console): State<Console>) -> Answered {
    let text = "WITH counted AS ( \
            SELECT 'client'::regclass AS relation, $1::bigint AS most, count(*) AS rows \
            FROM (SELECT FROM client LIMIT $1::bigint + 1) AS few \
            UNION ALL SELECT 'queue'::regclass, 10 * $1, count(*) \
            FROM (SELECT FROM queue LIMIT 10 * $1 + 1) AS few \
            UNION ALL SELECT 'message'::regclass, $1, count(*) \
            FROM (SELECT FROM message LIMIT $1 + 1) AS few) \
        SELECT CASE WHEN rows <= most THEN rows ELSE greatest(rows, reltuples::bigint) END, rows <= most \
        FROM counted JOIN pg_class ON pg_class.oid = relation \
        ORDER BY array_position(ARRAY['client', 'queue', 'message']::name[], relname)";
    let rows = console.rows(text, &[&COUNTED]).await?;
    let [clients, queues, messages] = rows.as_slice() else { return Err(Failure::empty()) };
    Ok(Json(json!({
        "clients": clients.get::<_, i64>(0),
        "clients_exact": clients.get::<_, bool>(1),
        "queues": queues.get::<_, i64>(0),
        "queues_exact": queues.get::<_, bool>(1),
        "messages": messages.get::<_, i64>(0),
        "messages_exact": messages.get::<_, bool>(1),
        "requests_waiting": console.dispatcher.waiting(),
        "content_characters": console.databases.limits().content_characters,
    })))
}

pub(super) async fn clients(
    State(console): State<Console>,
    Asked(page): Asked<PageOf>,
) -> Answered {
    let text = "WITH looked AS MATERIALIZED ( \
            SELECT * FROM client WHERE id > $1 ORDER BY id LIMIT $2), \
        fitting AS MATERIALIZED ( \
            SELECT * FROM looked WHERE $3 = '%' OR name ILIKE $3 ORDER BY id LIMIT $4), \
        far AS (SELECT CASE WHEN (SELECT count(*) FROM fitting) < $4 \
            THEN (SELECT max(id) FROM looked HAVING count(*) = $2) END AS looked_to) \
        SELECT f.id, looked_to, f.name, f.present, (extract(epoch FROM f.hello_at) * 1000)::bigint \
        FROM far LEFT JOIN fitting f ON true ORDER BY f.id";
    let search = pattern(&page.search)?;
    let rows = console.rows(text, &[&page.after, &LOOKED_AT, &search, &ROWS]).await?;
    let client = |row: &Row| {
        json!({
            "client_id": row.get::<_, i64>(0),
            "name": row.get::<_, String>(2),
            "present": row.get::<_, bool>(3),
            "hello_at_ms": row.get::<_, i64>(4),
        })
    };
    Ok(paged(&rows, client))
}

pub(super) async fn queues(State(console): State<Console>, Asked(page): Asked<PageOf>) -> Answered {
    let text = "WITH looked AS MATERIALIZED ( \
            SELECT * FROM queue WHERE id > $1 ORDER BY id LIMIT $2), \
        fitting AS MATERIALIZED ( \
            SELECT * FROM looked WHERE $3 = '%' OR name ILIKE $3 ORDER BY id LIMIT $4), \
        far AS (SELECT CASE WHEN (SELECT count(*) FROM fitting) < $4 \
            THEN (SELECT max(id) FROM looked HAVING count(*) = $2) END AS looked_to) \
        SELECT f.id, looked_to, f.name, s.waiting, s.leased, s.delayed, s.oldest_age_ms, \
            f.max_deliveries, f.dead_letter_queue_id, s.retention_ms, f.paused, s.archive_ms \
        FROM far LEFT JOIN fitting f ON true \
            LEFT JOIN LATERAL queue_statistics(f.id, $5) AS s ON true ORDER BY f.id";
    let search = pattern(&page.search)?;
    let rows = console.rows(text, &[&page.after, &LOOKED_AT, &search, &ROWS, &COUNTED]).await?;
    let through = console.dispatcher.through();
    let queue = |row: &Row| {
        let through = through.get(&row.get(0)).copied().unwrap_or_default();
        json!({
            "queue_id": row.get::<_, i64>(0),
            "sent": through.sent,
            "taken": through.taken,
            "name": row.get::<_, String>(2),
            // NULL where the queue was deleted while it was read.
            "waiting": row.get::<_, Option<i64>>(3).unwrap_or_default(),
            "leased": row.get::<_, Option<i64>>(4).unwrap_or_default(),
            "delayed": row.get::<_, Option<i64>>(5).unwrap_or_default(),
            "counted_up_to": COUNTED,
            "oldest_age_ms": row.get::<_, Option<i64>>(6).unwrap_or_default(),
            "max_deliveries": row.get::<_, Option<i32>>(7),
            "dead_letter_queue_id": row.get::<_, Option<i64>>(8),
            "retention_ms": row.get::<_, Option<i64>>(9),
            "paused": row.get::<_, bool>(10),
            "archive_ms": row.get::<_, Option<i64>>(11),
        })
    };
    Ok(paged(&rows, queue))
}

pub(super) async fn messages(
    State(console): State<Console>,
    Asked(page): Asked<PageOf>,
) -> Answered {
    let (before, order, furthest, from) = if page.newest_first {
        ("<", "DESC", "min", if page.after > 0 { page.after } else { i64::MAX })
    } else {
        (">", "ASC", "max", page.after)
    };
    let text = format!(
        "WITH looked AS MATERIALIZED ( \
            SELECT * FROM message WHERE id {before} $1 ORDER BY id {order} LIMIT $2), \
        fitting AS MATERIALIZED ( \
            SELECT * FROM looked m WHERE ($3 = '%' OR m.content ILIKE $3) \
            AND ($5::bigint IS NULL OR m.queue_id = $5) \
            AND ($6::bigint IS NULL OR m.sender_id = $6) \
            AND ($7::bigint IS NULL OR m.receiver_id = $7) ORDER BY m.id {order} LIMIT $4), \
        far AS (SELECT CASE WHEN (SELECT count(*) FROM fitting) < $4 \
            THEN (SELECT {furthest}(id) FROM looked HAVING count(*) = $2) END AS looked_to) \
        SELECT m.id, looked_to, m.queue_id, q.name, m.sender_id, s.name, m.receiver_id, r.name, \
            m.priority, m.deliveries, (extract(epoch FROM m.sent_at) * 1000)::bigint, \
            (extract(epoch FROM m.due_at) * 1000)::bigint, m.lease_id IS NOT NULL, \
            left(m.content, 200), char_length(m.content), octet_length(m.body), m.dead_reason \
        FROM far LEFT JOIN fitting m ON true \
            LEFT JOIN queue q ON q.id = m.queue_id LEFT JOIN client s ON s.id = m.sender_id \
            LEFT JOIN client r ON r.id = m.receiver_id ORDER BY m.id {order}"
    );
    let search = pattern(&page.search)?;
    let queue = id_of(&console, "queue", &page.queue).await?;
    let sender = id_of(&console, "client", &page.sender).await?;
    let receiver = id_of(&console, "client", &page.receiver).await?;
    let rows = console
        .rows(&text, &[&from, &LOOKED_AT, &search, &ROWS, &queue, &sender, &receiver])
        .await?;
    Ok(paged(&rows, one_message))
}

fn one_message(row: &Row) -> Value {
    json!({
        "message_id": row.get::<_, i64>(0),
        "queue_id": row.get::<_, Option<i64>>(2),
        "queue": row.get::<_, Option<String>>(3),
        "sender_id": row.get::<_, Option<i64>>(4),
        "sender": row.get::<_, Option<String>>(5),
        "receiver_id": row.get::<_, Option<i64>>(6),
        "receiver": row.get::<_, Option<String>>(7),
        "priority": row.get::<_, Option<i32>>(8),
        "deliveries": row.get::<_, Option<i32>>(9),
        "sent_at_ms": row.get::<_, Option<i64>>(10),
        "due_at_ms": row.get::<_, Option<i64>>(11),
        "leased": row.get::<_, Option<bool>>(12),
        "content": row.get::<_, Option<String>>(13),
        "characters": row.get::<_, Option<i32>>(14),
        "bytes": row.get::<_, Option<i32>>(15),
        "dead_reason": row.get::<_, Option<String>>(16),
    })
}

pub(super) async fn message(
    State(console): State<Console>,
    id: Result<Path<i64>, PathRejection>,
) -> Answered {
    let Path(id) = id?;
    let text = "SELECT m.id, NULL::bigint, m.queue_id, q.name, m.sender_id, s.name, m.receiver_id, \
        r.name, m.priority, m.deliveries, (extract(epoch FROM m.sent_at) * 1000)::bigint, \
        (extract(epoch FROM m.due_at) * 1000)::bigint, m.lease_id IS NOT NULL, m.content, \
        char_length(m.content), octet_length(m.body), m.dead_reason, m.leased_by, h.name, \
        m.headers::text, m.origin_queue_id, o.name, (extract(epoch FROM m.dead_at) * 1000)::bigint \
        FROM message m JOIN queue q ON q.id = m.queue_id LEFT JOIN client s ON s.id = m.sender_id \
        LEFT JOIN client r ON r.id = m.receiver_id LEFT JOIN client h ON h.id = m.leased_by \
        LEFT JOIN queue o ON o.id = m.origin_queue_id \
        WHERE m.id = $1";
    let rows = console.rows(text, &[&id]).await?;
    let row = rows.first().ok_or_else(|| {
        Failure(StatusCode::NOT_FOUND, format!("message {id} is not there (any more)"))
    })?;
    let mut told = one_message(row);
    told["leased_by_id"] = json!(row.get::<_, Option<i64>>(17));
    told["leased_by"] = json!(row.get::<_, Option<String>>(18));
    let headers = row.get::<_, Option<String>>(19);
    told["headers"] = headers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    told["origin_queue_id"] = json!(row.get::<_, Option<i64>>(20));
    told["origin"] = json!(row.get::<_, Option<String>>(21));
    told["dead_at_ms"] = json!(row.get::<_, Option<i64>>(22));
    Ok(Json(told))
}

/// The id of a queue or a client, by its name or else by its id; none where nothing is asked for.
pub(super) async fn id_of(
    console: &Console,
    table: &'static str,
    text: &str,
) -> Result<Option<i64>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let missing = || Failure(StatusCode::NOT_FOUND, format!("there is no {table} `{text}`"));
    if text.contains('\0') {
        return Err(missing());
    }
    let number: i64 = text.parse().unwrap_or_default();
    let rows = console
        .rows(
            &format!(
                "SELECT id FROM (SELECT id, 1 AS rank FROM {table} WHERE name = $1 \
                 UNION ALL SELECT id, 2 FROM {table} WHERE id = $2) AS found ORDER BY rank LIMIT 1"
            ),
            &[&text, &number],
        )
        .await?;
    rows.first().map(|row| Some(row.get(0))).ok_or_else(missing)
}

/// Rows whose first column is their id (NULL: there is none), and whose second says how far was read
/// where more might follow.
fn paged(rows: &[Row], value: impl Fn(&Row) -> Value) -> Json<Value> {
    let found: Vec<&Row> =
        rows.iter().filter(|row| row.get::<_, Option<i64>>(0).is_some()).collect();
    let full = i64::try_from(found.len()).is_ok_and(|count| count == ROWS);
    let last: Option<i64> = found.last().filter(|_| full).map(|row| row.get(0));
    let next = last.or_else(|| rows.first().and_then(|row| row.get(1)));
    Json(json!({ "rows": found.into_iter().map(value).collect::<Vec<_>>(), "next": next }))
}

/// A search as a pattern: text that a name or a content holds.
fn pattern(text: &str) -> Result<String, Failure> {
    let refused = |text: String| Err(Failure(StatusCode::BAD_REQUEST, text));
    if text.chars().count() > SEARCH {
        return refused(format!("a search has at most {SEARCH} characters"));
    }
    if text.contains('\0') {
        return refused("no name and no content holds a NUL character".to_owned());
    }
    Ok(like(text))
}

/// Text as a pattern that it is part of.
fn like(text: &str) -> String {
    if text.is_empty() {
        return "%".to_owned();
    }
    let mut pattern = String::from("%");
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_text_and_not_a_pattern() {
        assert_eq!(like("50%_\\"), "%50\\%\\_\\\\%");
        assert_eq!(like(""), "%");
        assert!(pattern(&"x".repeat(201)).is_err());
        assert!(pattern("a\0b").is_err());
    }
}
