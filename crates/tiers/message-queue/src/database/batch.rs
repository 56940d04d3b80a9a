//! Operations as statements: sends share one, as takes and acknowledgements do; the rest share a transaction.

mod message;
mod uniform;

use std::time::Duration;

use kendall_protocols::queue::{ArchivedMessage, Message, Queue, QueueStatisticsResponse};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};
use tonic::Status;

use self::message::{extra_of, with_extra};
use super::error::status;
use super::session::Session;
use crate::operation::{
    Answer, COUNT_LIMIT, Held, Listing, Operation, PutBack, RequestId, Selector, Send, Take,
};
use crate::refusal::{NOTHING_THERE, Refusal};

type Connection = deadpool_postgres::Object;
type Answers = Vec<Result<Answer, Status>>;
/// What PostgreSQL says of each operation.
type Outcomes = Vec<Result<Answer, Refusal>>;

const SEND: &str = "SELECT codes, ids FROM send_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const TAKE: &str = "SELECT code, message_id, queue_id, sender_id, receiver_id, priority, content, \
    sent_at_us, deliveries, lease_id, body, extra, place, \
    (SELECT CASE WHEN 0 = ANY ($5) THEN mark_taking() END) FROM take_many($1, $2, $3, $4, $5)";
const TAKE_ONCE: &str = "SELECT code, message_id, queue_id, sender_id, receiver_id, priority, content, \
    sent_at_us, deliveries, lease_id, body, extra FROM take_once($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
    ORDER BY message_id";
const ACKNOWLEDGE: &str = "SELECT code FROM acknowledge_many($1, $2, $3)";

/// Rows that one purge step drops.
const PURGE_STEP: i32 = 10_000;
/// Dead letters that one step moves.
const REDRIVE_STEP: i32 = 1000;
/// Bytes of contents from which a listing reads no more: what goes into an answer.
const LISTED_BYTES: i64 = 4 << 20;

/// Why a nearly full disk refuses more than sends.
const STORES: &str = "nothing was done: what space is left is for what frees some";
const MANY: &str =
    "nothing was done: these messages are too many for one request_id; acknowledge fewer";

/// Why operations were not performed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// Messages that may have been removed: the commit was not confirmed.
    pub(super) undecided: Option<Undecided>,
}

#[derive(Debug)]
pub(super) enum Fault {
    Database(Error),
    /// PostgreSQL took longer than it may.
    Elapsed(Duration),
}

/// Messages that were taken away in a transaction of which it is not known whether it was committed.
#[derive(Debug)]
pub(crate) struct Undecided {
    pub(crate) marker: String,
    pub(crate) messages: Vec<Message>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { fault: Fault::Database(error), undecided: None }
    }
}

/// What PostgreSQL answers in time.
async fn in_time<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(patience, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Failure { fault: Fault::Elapsed(patience), undecided: None }),
    }
}

/// Performs operations of one lane; a failure means that none of them was committed, unless the
/// connection broke. `executed` is called where only the commit is left.
pub(super) async fn perform(
    session: &Session,
    operations: &[&Operation],
    executed: &(dyn Fn() + Sync),
) -> Result<Answers, Failure> {
    let Session { connection, limits, .. } = session;
    let longest = operations.iter().map(|operation| operation.patience(session.patience)).max();
    let patience = longest.unwrap_or_default();
    let done = if let Some(takes) = all(operations, as_take) {
        take_all(connection, &takes, patience, executed).await?
    } else if let Some(sends) = all(operations, as_send) {
        in_time(patience, send_all(connection, &sends, executed)).await?
    } else if let Some(held) = all(operations, as_acknowledgement) {
        in_time(patience, acknowledge_all(connection, &held)).await?
    } else {
        in_time(patience, one_by_one(session, operations)).await?
    };
    let mut answers = done.into_iter();
    let next = |_: &&Operation| match answers.next() {
        Some(answer) => answer.map_err(|refusal| refusal.status(limits)),
        None => Err(Status::internal("an operation had no answer")),
    };
    Ok(operations.iter().map(next).collect())
}

/// Takes messages in two steps: removed messages are read here before the commit, so that a failed
/// commit loses none.
async fn take_all(
    connection: &Connection,
    takes: &[&Take],
    patience: Duration,
    executed: &(dyn Fn() + Sync),
) -> Result<Outcomes, Failure> {
    if takes.iter().all(|take| take.lease_ms > 0) {
        // A lease that was not answered expires by itself.
        return Ok(in_time(patience, take_any(connection, takes)).await?.0);
    }
    let step = async {
        // Sent together; the transaction begins before the takes.
        let (begun, taken) = tokio::join!(
            biased;
            connection.batch_execute("BEGIN"),
            take_any(connection, takes),
        );
        begun?;
        if taken.is_err() && !connection.is_closed() {
            connection.batch_execute("ROLLBACK").await?;
        }
        taken
    };
    let (taken, marker) = in_time(patience, step).await?;
    executed();
    match in_time(patience, connection.batch_execute("COMMIT")).await {
        Ok(()) => Ok(taken),
        Err(mut failure) => {
            let removed = takes.iter().zip(taken).filter(|(take, _)| take.lease_ms == 0);
            let messages: Vec<Message> =
                removed.filter_map(|(_, answer)| answer.ok()?.into_message()).collect();
            failure.undecided = marker
                .filter(|_| !messages.is_empty())
                .map(|marker| Undecided { marker, messages });
            Err(failure)
        }
    }
}

/// What was taken, and the marker of the transaction where a message was taken away.
async fn take_any(
    connection: &Connection,
    takes: &[&Take],
) -> Result<(Outcomes, Option<String>), Error> {
    if let Some(done) = uniform::take(connection, takes).await? {
        return Ok(done);
    }
    let parameters = vec![
        column(takes, |take| take.selector.client),
        column(takes, |take| take.selector.queue),
        column(takes, |take| take.selector.sender),
        column(takes, |take| take.selector.by_priority),
        column(takes, |take| take.lease_ms),
    ];
    let rows = Call::prepare(connection, TAKE, parameters).await?.run(connection).await?;
    // Once a statement, and only where it gives rows.
    let marker = rows.first().and_then(|row| row.get(13));
    Ok((found(&rows, takes.len()), marker))
}

async fn send_all(
    connection: &Connection,
    sends: &[&Send],
    executed: &(dyn Fn() + Sync),
) -> Result<Outcomes, Error> {
    if let Some(done) = uniform::send(connection, sends, executed).await? {
        return Ok(done);
    }
    let parameters = vec![
        column(sends, |send| send.client),
        column(sends, |send| send.queue),
        column(sends, |send| send.receiver),
        column(sends, |send| send.content.as_str()),
        column(sends, |send| send.priority),
        column(sends, |send| send.delay_ms),
        some_column(sends, |send| send.data.as_deref()),
        some_column(sends, |send| send.headers.as_deref()),
        some_column(sends, |send| send.request.map(|request| request.id)),
        some_column(sends, |send| send.request.map(|request| request.digest)),
    ];
    let rows = Call::prepare(connection, SEND, parameters).await?.run(connection).await?;
    Ok(sent(&rows, sends.len()))
}

async fn acknowledge_all(connection: &Connection, held: &[&Held]) -> Result<Outcomes, Error> {
    let parameters = vec![
        column(held, |held| held.client),
        column(held, |held| held.message),
        column(held, |held| held.lease),
    ];
    let rows = Call::prepare(connection, ACKNOWLEDGE, parameters).await?.run(connection).await?;
    Ok(rows.iter().map(|row| coded(row, |_| Answer::Done)).collect())
}

/// Performs operations that have no statement together: in one transaction.
async fn one_by_one(session: &Session, operations: &[&Operation]) -> Result<Outcomes, Error> {
    if let [operation] = operations {
        empty_stepwise(session, operation).await?;
        return Ok(vec![single(session, operation).await?]);
    }
    let connection = &session.connection;
    connection.batch_execute("BEGIN").await?;
    let mut done = Vec::with_capacity(operations.len());
    for operation in operations {
        match single(session, operation).await {
            Ok(outcome) => done.push(outcome),
            Err(error) => {
                connection.batch_execute("ROLLBACK").await?;
                return Err(error);
            }
        }
    }
    connection.batch_execute("COMMIT").await?;
    Ok(done)
}

/// The operations as those of one kind, if they all are.
fn all<'a, T>(
    operations: &[&'a Operation],
    as_kind: fn(&'a Operation) -> Option<&'a T>,
) -> Option<Vec<&'a T>> {
    operations.iter().map(|operation| as_kind(operation)).collect()
}

fn as_send(operation: &Operation) -> Option<&Send> {
    if let Operation::Send(send) = operation { Some(send) } else { None }
}

fn as_take(operation: &Operation) -> Option<&Take> {
    if let Operation::Take(take) = operation { Some(take) } else { None }
}

fn as_acknowledgement(operation: &Operation) -> Option<&Held> {
    if let Operation::Acknowledge(held) = operation { Some(held) } else { None }
}

type Parameter<'a> = Box<dyn ToSql + Sync + std::marker::Send + 'a>;

/// One value of each of them, as an array.
fn column<'a, T, V: ToSql + Sync + std::marker::Send + 'a>(
    items: &[&'a T],
    value: impl Fn(&'a T) -> V,
) -> Parameter<'a> {
    Box::new(items.iter().map(|item| value(item)).collect::<Vec<V>>())
}

/// The same; NULL where none of them has any.
fn some_column<'a, T, V: ToSql + Sync + std::marker::Send + 'a>(
    items: &[&'a T],
    value: impl Fn(&'a T) -> Option<V>,
) -> Parameter<'a> {
    let values: Vec<Option<V>> = items.iter().map(|item| value(item)).collect();
    Box::new(values.iter().any(Option::is_some).then_some(values))
}

/// A statement that PostgreSQL knows, and what goes with it.
struct Call<'a> {
    statement: Statement,
    parameters: Vec<Parameter<'a>>,
}

impl<'a> Call<'a> {
    async fn prepare(
        connection: &Connection,
        text: &str,
        parameters: Vec<Parameter<'a>>,
    ) -> Result<Self, Error> {
        Ok(Self { statement: connection.prepare_cached(text).await?, parameters })
    }

    async fn run(&self, connection: &Connection) -> Result<Vec<Row>, Error> {
        let parameters: Vec<&(dyn ToSql + Sync)> =
            self.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
        connection.query(&self.statement, &parameters).await
    }
}

async fn query(
    connection: &Connection,
    text: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let statement = connection.prepare_cached(text).await?;
    connection.query(&statement, parameters).await
}

/// The row of `send_many`: no codes where all went well.
fn sent(rows: &[Row], count: usize) -> Outcomes {
    let Some(row) = rows.first() else { return Vec::new() };
    let codes: Option<Vec<i32>> = row.get(0);
    let ids: Vec<Option<i64>> = row.get(1);
    let codes = codes.unwrap_or_else(|| vec![0; count]);
    let answer = |(code, message)| match code {
        0 => Ok(Answer::Number(id(message))),
        code => Err(Refusal(code)),
    };
    codes.into_iter().zip(ids).map(answer).collect()
}

/// The rows of `take_many` at their places; where there is none, no message was there.
fn found(rows: &[Row], count: usize) -> Outcomes {
    let mut answers: Vec<_> = (0..count).map(|_| Ok(Answer::Message(None))).collect();
    for row in rows {
        let place: i64 = row.get(12);
        let answer = usize::try_from(place - 1).ok().and_then(|place| answers.get_mut(place));
        if let Some(answer) = answer {
            *answer = taken(row);
        }
    }
    answers
}

/// A row of `take_many`.
fn taken(row: &Row) -> Result<Answer, Refusal> {
    match row.get::<_, i32>(0) {
        0 => Ok(Answer::Message(Some(one_taken(row)))),
        NOTHING_THERE => Ok(Answer::Message(None)),
        code => Err(Refusal(code)),
    }
}

fn one_taken(row: &Row) -> (Message, u64) {
    let plain = Message {
        message_id: id(row.get(1)),
        queue_id: id(row.get(2)),
        sender_id: id(row.get(3)),
        receiver_id: id(row.get(4)),
        priority: row.get(5),
        content: row.get(6),
        sent_at_us: row.get(7),
        deliveries: u32::try_from(row.get::<_, i32>(8)).unwrap_or_default(),
        ..Message::default()
    };
    (with_extra(plain, row.get(10), row.get(11)), id(row.get(9)))
}

/// Why an operation is not for a disk whose log may have so many bytes, or is tight: it would take space for good, or for
/// as long as a lease, or it cannot be done by little log.
pub(super) async fn why_not(
    connection: &Connection,
    operation: &Operation,
    (log_bytes, is_tight): (i64, bool),
) -> Option<&'static str> {
    let asked: (&str, Vec<&(dyn ToSql + Sync)>) = match operation {
        Operation::AcknowledgeOnce(held, request) => {
            let ids: Vec<i64> = held.iter().map(|held| held.message).collect();
            let text = "SELECT NOT EXISTS (SELECT FROM answered WHERE client_id = $1 AND request_id = $2) \
                AND ($4 OR (SELECT sum(octet_length(content) + coalesce(octet_length(body), 0)) FROM message \
                    WHERE id = ANY ($3)) > $5)";
            let client = held.first().map_or(0, |held| held.client);
            let parameters: [&(dyn ToSql + Sync); 5] =
                [&client, &request.id, &ids, &is_tight, &log_bytes];
            let rows = query(connection, text, &parameters).await;
            let refused = rows.is_ok_and(|rows| is_true(&rows));
            let why = if is_tight { STORES } else { MANY };
            return refused.then_some(why);
        }
        _ if !is_tight => return None,
        Operation::Take(take) if take.lease_ms == 0 => {
            ("SELECT archive_for IS NOT NULL FROM queue WHERE id = $1", vec![&take.selector.queue])
        }
        Operation::Acknowledge(held) => (
            "SELECT q.archive_for IS NOT NULL FROM queue q \
             WHERE q.id = (SELECT m.queue_id FROM message m WHERE m.id = $1)",
            vec![&held.message],
        ),
        Operation::Hello { name } => {
            ("SELECT NOT EXISTS (SELECT FROM client WHERE name = $1)", vec![name])
        }
        Operation::Take(_)
        | Operation::ExtendLease(..)
        | Operation::Return(..)
        | Operation::CreateQueue(_)
        | Operation::Redrive { .. } => return Some(STORES),
        _ => return None,
    };
    let rows = query(connection, asked.0, &asked.1).await;
    // Where it cannot be told, the operation meets the same error.
    rows.is_ok_and(|rows| is_true(&rows)).then_some(STORES)
}

fn is_true(rows: &[Row]) -> bool {
    rows.first().and_then(|row| row.get(0)).unwrap_or(false)
}

/// Operations that come one at a time.
async fn single(
    session: &Session,
    operation: &Operation,
) -> Result<Result<Answer, Refusal>, Error> {
    let connection = &session.connection;
    let (text, parameters): (&str, Vec<&(dyn ToSql + Sync)>) = match operation {
        Operation::Hello { name } => ("SELECT 0, hello_soon($1)", vec![name]),
        Operation::Goodbye { client } => ("SELECT goodbye($1)", vec![client]),
        Operation::CreateQueue(queue) => (
            "SELECT code, queue_id FROM create_queue($1, $2, $3, $4, $5)",
            vec![
                &queue.name,
                &queue.max_deliveries,
                &queue.dead_letter,
                &queue.retention_ms,
                &queue.archive_ms,
            ],
        ),
        Operation::ChangeQueue(change) => (
            "SELECT change_queue($1, $2, $3, $4, $5, $6, $7)",
            vec![
                &change.queue,
                &change.name,
                &change.max_deliveries,
                &change.dead_letter,
                &change.retention_ms,
                &change.archive_ms,
                &change.paused,
            ],
        ),
        Operation::DeleteQueue { queue, with_messages } => {
            ("SELECT delete_queue($1, $2)", vec![queue, with_messages])
        }
        Operation::DeleteMessage { message } => (
            "WITH gone AS (DELETE FROM message WHERE id = $1 RETURNING 1) \
             SELECT CASE WHEN EXISTS (SELECT FROM gone) THEN 0 ELSE 14 END",
            vec![message],
        ),
        Operation::ExtendLease(held, ms) => (
            "SELECT extend_lease($1, $2, $3, $4)",
            vec![&held.client, &held.message, &held.lease, ms],
        ),
        Operation::Return(held, ms, why) => (
            "SELECT return_message($1, $2, $3, $4, $5)",
            vec![&held.client, &held.message, &held.lease, ms, why],
        ),
        Operation::PutBack(back) => return put_back(connection, back).await,
        Operation::TakeOnce(take, at_most, request) => {
            return take_once(connection, take, (*at_most, session.is_full()), request).await;
        }
        Operation::AcknowledgeOnce(held, request) => {
            return acknowledge_once(connection, held, request).await;
        }
        Operation::DeadLetters(listing) => return dead_letters(connection, listing).await,
        Operation::Redrive { queue, messages, target } => {
            return redrive(session, *queue, messages, *target).await;
        }
        Operation::Archived(listing) => return archived(connection, listing).await,
        Operation::Read(selector) => return read(connection, selector).await,
        Operation::ListQueues { client, all, after, limit } => {
            return list(connection, &[client, all, after, limit]).await;
        }
        Operation::Statistics { queue } => return statistics(connection, *queue).await,
        Operation::Purge { queue } => return purge(session, *queue).await,
        Operation::Send(_) | Operation::Take(_) | Operation::Acknowledge(_) => {
            unreachable!("these are performed together with their kind")
        }
    };
    let rows = query(connection, text, &parameters).await?;
    let numbered = matches!(operation, Operation::Hello { .. } | Operation::CreateQueue(_));
    let answer = |row: &Row| if numbered { Answer::Number(id(row.get(1))) } else { Answer::Done };
    Ok(rows.first().map_or(Err(Refusal(-1)), |row| coded(row, answer)))
}

async fn put_back(
    connection: &Connection,
    back: &PutBack,
) -> Result<Result<Answer, Refusal>, Error> {
    let PutBack { attempt, marker, message } = back;
    let number = |value: u64| i64::try_from(value).ok();
    let optional = |value: u64| number(value).filter(|value| *value > 0);
    let (message_id, queue, sender) =
        (number(message.message_id), number(message.queue_id), number(message.sender_id));
    let deliveries = i32::try_from(message.deliveries).unwrap_or(i32::MAX);
    let data = (!message.data.is_empty()).then_some(&message.data);
    let text = "SELECT put_back($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let parameters: [&(dyn ToSql + Sync); 12] = [
        attempt,
        marker,
        &message_id,
        &queue,
        &sender,
        &optional(message.receiver_id),
        &message.priority,
        &message.content,
        &message.sent_at_us,
        &deliveries,
        &data,
        &extra_of(message),
    ];
    let rows = query(connection, text, &parameters).await?;
    Ok(rows.first().map_or(Err(Refusal(-1)), |row| coded(row, |_| Answer::Done)))
}

async fn take_once(
    connection: &Connection,
    take: &Take,
    (at_most, is_full): (i32, bool),
    request: &RequestId,
) -> Result<Result<Answer, Refusal>, Error> {
    let Selector { client, queue, sender, by_priority } = &take.selector;
    let RequestId { id, operation, digest } = request;
    let Take { lease_ms, .. } = take;
    let parameters: [&(dyn ToSql + Sync); 10] =
        [client, queue, sender, by_priority, lease_ms, &at_most, operation, id, digest, &is_full];
    let mut messages = Vec::new();
    for row in query(connection, TAKE_ONCE, &parameters).await? {
        match row.get::<_, i32>(0) {
            0 => messages.push(one_taken(&row)),
            NOTHING_THERE => {}
            code => return Ok(Err(Refusal(code))),
        }
    }
    Ok(Ok(Answer::Messages(messages)))
}

async fn acknowledge_once(
    connection: &Connection,
    held: &[Held],
    request: &RequestId,
) -> Result<Result<Answer, Refusal>, Error> {
    let messages: Vec<i64> = held.iter().map(|held| held.message).collect();
    let leases: Vec<i64> = held.iter().map(|held| held.lease).collect();
    let client = held.first().map(|held| held.client).unwrap_or_default();
    let RequestId { id, operation, digest } = request;
    let text = "SELECT acknowledge_once($1, $2, $3, $4, $5, $6)";
    let rows =
        query(connection, text, &[&client, &messages, &leases, operation, id, digest]).await?;
    Ok(rows.first().map_or(Err(Refusal(-1)), |row| Ok(Answer::Codes(row.get(0)))))
}

async fn dead_letters(
    connection: &Connection,
    listing: &Listing,
) -> Result<Result<Answer, Refusal>, Error> {
    let Listing { queue, sender, after, limit } = listing;
    if !is_queue(connection, *queue).await? {
        return Ok(Err(Refusal(3)));
    }
    let text = "SELECT message_id, sender_id, priority, content, sent_at_us, body, extra \
        FROM dead_letters($1, $2, $3, $4, $5)";
    let rows = query(connection, text, &[queue, sender, after, limit, &LISTED_BYTES]).await?;
    let letter = |row: &Row| {
        let plain = Message {
            message_id: id(row.get(0)),
            queue_id: id(Some(*queue)),
            sender_id: id(row.get(1)),
            priority: row.get(2),
            content: row.get(3),
            sent_at_us: row.get(4),
            ..Message::default()
        };
        (with_extra(plain, row.get(5), row.get(6)), 0)
    };
    Ok(Ok(Answer::Messages(rows.iter().map(letter).collect())))
}

async fn redrive(
    session: &Session,
    queue: i64,
    messages: &[i64],
    target: Option<i64>,
) -> Result<Result<Answer, Refusal>, Error> {
    let connection = &session.connection;
    for known in [Some(queue), target].into_iter().flatten() {
        if !is_queue(connection, known).await? {
            return Ok(Err(Refusal(3)));
        }
    }
    let some = (!messages.is_empty()).then_some(messages);
    let text = "SELECT moved, last FROM redrive($1, $2, $3, $4, $5)";
    let (mut moved, mut after) = (0, 0_i64);
    loop {
        let (step, _turn) = session.step(REDRIVE_STEP).await?;
        let rows = query(connection, text, &[&queue, &some, &target, &after, &step]).await?;
        moved += rows.first().map_or(0, |row| id(row.get(0)));
        // None where all were named at once, or where nothing is left. What has nowhere to go stays, and those
        // after it are moved all the same.
        let last: Option<i64> = rows.first().and_then(|row| row.get(1));
        let Some(last) = last else { return Ok(Ok(Answer::Number(moved))) };
        after = last;
    }
}

async fn archived(
    connection: &Connection,
    listing: &Listing,
) -> Result<Result<Answer, Refusal>, Error> {
    let Listing { queue, after, limit, .. } = listing;
    if !is_queue(connection, *queue).await? {
        return Ok(Err(Refusal(3)));
    }
    let text = "SELECT message_id, sender_id, receiver_id, priority, content, \
            (extract(epoch FROM sent_at) * 1000000)::bigint, deliveries, body, \
            CASE WHEN headers IS NOT NULL THEN jsonb_build_object('headers', headers)::text END, \
            taken_by, received, (extract(epoch FROM done_at) * 1000000)::bigint \
        FROM archived($1, $2, $3, $4)";
    let rows = query(connection, text, &[queue, after, limit, &LISTED_BYTES]).await?;
    let message = |row: &Row| {
        let plain = Message {
            message_id: id(row.get(0)),
            queue_id: id(Some(*queue)),
            sender_id: id(row.get(1)),
            receiver_id: id(row.get(2)),
            priority: row.get(3),
            content: row.get(4),
            sent_at_us: row.get(5),
            deliveries: u32::try_from(row.get::<_, i32>(6)).unwrap_or_default(),
            ..Message::default()
        };
        ArchivedMessage {
            message: Some(with_extra(plain, row.get(7), row.get(8))),
            taken_by: id(row.get(9)),
            received: row.get(10),
            done_at_us: row.get(11),
        }
    };
    Ok(Ok(Answer::Archived(rows.iter().map(message).collect())))
}

async fn is_queue(connection: &Connection, queue: i64) -> Result<bool, Error> {
    Ok(!query(connection, "SELECT FROM queue WHERE id = $1", &[&queue]).await?.is_empty())
}

async fn read(
    connection: &Connection,
    selector: &Selector,
) -> Result<Result<Answer, Refusal>, Error> {
    let Selector { client, queue, sender, by_priority } = selector;
    let text = "WITH checked AS (SELECT client_code($2) AS code) \
        SELECT CASE WHEN c.code <> 0 THEN c.code \
            WHEN NOT EXISTS (SELECT FROM queue WHERE id = $1) THEN 3 \
            WHEN m.id IS NULL THEN 7 ELSE 0 END, \
        m.id, m.queue_id, m.sender_id, m.receiver_id, m.priority, m.content, \
        (extract(epoch FROM m.sent_at) * 1000000)::bigint, m.deliveries, NULL::bigint, m.body, \
        CASE WHEN m.id IS NOT NULL THEN extra_of(m) END FROM checked c LEFT JOIN peek($1, $2, $3, $4) AS m ON true";
    let rows = query(connection, text, &[queue, client, sender, by_priority]).await?;
    Ok(rows.first().map_or(Err(Refusal(-1)), taken))
}

async fn list(
    connection: &Connection,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Result<Answer, Refusal>, Error> {
    let code = query(connection, "SELECT client_code($1)", &parameters[..1]).await?;
    if let Some(code) = code.first().map(|row| row.get(0)).filter(|code| *code != 0) {
        return Ok(Err(Refusal(code)));
    }
    let text = "SELECT id, name FROM queues_for($1, $2, $3, $4)";
    let rows = query(connection, text, parameters).await?;
    let queue = |row: &Row| Queue { queue_id: id(row.get(0)), name: row.get(1) };
    Ok(Ok(Answer::Queues(rows.iter().map(queue).collect())))
}

async fn statistics(connection: &Connection, queue: i64) -> Result<Result<Answer, Refusal>, Error> {
    let text = "SELECT name, waiting, leased, delayed, oldest_age_ms, max_deliveries, \
        dead_letter_queue_id, retention_ms, paused, archive_ms FROM queue_statistics($1, $2)";
    let rows = query(connection, text, &[&queue, &COUNT_LIMIT]).await?;
    let Some(row) = rows.first() else { return Ok(Err(Refusal(3))) };
    let max_deliveries: Option<i32> = row.get(5);
    Ok(Ok(Answer::Statistics(QueueStatisticsResponse {
        name: row.get(0),
        waiting: id(row.get(1)),
        leased: id(row.get(2)),
        delayed: id(row.get(3)),
        count_limit: id(Some(COUNT_LIMIT)),
        oldest_age_ms: id(row.get(4)),
        max_deliveries: max_deliveries.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
        dead_letter_queue_id: id(row.get(6)),
        retention_ms: id(row.get(7)),
        paused: row.get(8),
        archive_ms: id(row.get(9)),
    })))
}

async fn purge(session: &Session, queue: i64) -> Result<Result<Answer, Refusal>, Error> {
    let connection = &session.connection;
    if !is_queue(connection, queue).await? {
        return Ok(Err(Refusal(3)));
    }
    let mut dropped = 0;
    loop {
        let (step, _turn) = session.step(PURGE_STEP).await?;
        let rows = query(connection, "SELECT purge_some($1, $2)", &[&queue, &step]).await?;
        let step = rows.first().map_or(0, |row| id(row.get(0)));
        dropped += step;
        if step == 0 {
            return Ok(Ok(Answer::Number(dropped)));
        }
    }
}

/// Removes what an operation would remove by one statement, where that writes more log than its disk bears.
async fn empty_stepwise(session: &Session, operation: &Operation) -> Result<(), Error> {
    let (queue, with_messages) = match operation {
        Operation::DeleteQueue { queue, with_messages } => (*queue, *with_messages),
        Operation::ChangeQueue(change) if change.archive_ms == Some(0) => (change.queue, true),
        _ => return Ok(()),
    };
    if !session.is_sparing() {
        return Ok(());
    }
    if matches!(operation, Operation::DeleteQueue { with_messages: true, .. }) {
        // What is unknown is found to be so afterwards.
        drop(purge(session, queue).await?);
    }
    let text = "WITH gone AS (DELETE FROM archive WHERE ctid = ANY (ARRAY(SELECT a.ctid FROM archive a \
            WHERE a.queue_id = $1 AND ($2 OR NOT holds_messages($1)) ORDER BY a.message_id LIMIT $3)) RETURNING 1) \
        SELECT count(*) FROM gone";
    loop {
        let (step, _turn) = session.step(PURGE_STEP).await?;
        let parameters: [&(dyn ToSql + Sync); 3] = [&queue, &with_messages, &i64::from(step)];
        let rows = query(&session.connection, text, &parameters).await?;
        if rows.first().is_none_or(|row| row.get::<_, i64>(0) == 0) {
            return Ok(());
        }
    }
}

/// The answer of a row whose first column is its code.
fn coded(row: &Row, answer: impl Fn(&Row) -> Answer) -> Result<Answer, Refusal> {
    match row.get::<_, i32>(0) {
        0 => Ok(answer(row)),
        code => Err(Refusal(code)),
    }
}

/// Ids and counts are positive in the database; 0 means none.
fn id(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or_default()
}

/// Whether PostgreSQL gave the transaction up for reasons that a repetition may not meet.
fn may_repeat(error: &Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
    })
}

impl Failure {
    /// Whether it may be tried again.
    pub(super) fn may_repeat(&self) -> bool {
        matches!(&self.fault, Fault::Database(error) if self.undecided.is_none() && may_repeat(error))
    }

    /// PostgreSQL's own code, if it gave one.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match &self.fault {
            Fault::Database(error) => error.code(),
            Fault::Elapsed(_) => None,
        }
    }

    pub(super) fn status(&self) -> Status {
        match &self.fault {
            Fault::Database(error) => status(error),
            Fault::Elapsed(patience) => Status::unavailable(format!(
                "PostgreSQL did not answer within {} s; whether the operation happened is unknown",
                patience.as_secs_f64()
            )),
        }
    }
}
