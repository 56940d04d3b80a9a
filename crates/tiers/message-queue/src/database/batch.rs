//! Operations as statements: those of one kind share a statement, those of several kinds share a
//! transaction.

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
use crate::operation::{
    Answer, COUNT_LIMIT, Held, Limits, Listing, Operation, PutBack, QueueChange, RequestId,
    Selector, Send, Take,
};
use crate::refusal::{NOTHING_THERE, Refusal};

type Connection = deadpool_postgres::Object;
type Answers = Vec<Result<Answer, Status>>;

const SEND: &str = "SELECT codes, ids FROM send_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const TAKE: &str = "SELECT code, message_id, queue_id, sender_id, receiver_id, priority, content, \
    sent_at_us, deliveries, lease_id, body, extra, place, \
    (SELECT CASE WHEN 0 = ANY ($5) THEN mark_taking() END) FROM take_many($1, $2, $3, $4, $5)";
const TAKE_ONCE: &str = "SELECT code, message_id, queue_id, sender_id, receiver_id, priority, content, \
    sent_at_us, deliveries, lease_id, body, extra FROM take_once($1, $2, $3, $4, $5, $6, $7, $8, $9) \
    ORDER BY message_id";
const ACKNOWLEDGE: &str = "SELECT code FROM acknowledge_many($1, $2, $3)";

/// Rows that one purge step drops.
const PURGE_STEP: i32 = 10_000;
/// Dead letters that one step moves.
const REDRIVE_STEP: i32 = 1000;
/// Bytes of contents from which a listing reads no more: what goes into an answer.
const LISTED_BYTES: i64 = 4 << 20;

/// Places of the operations of each kind in the batch.
#[derive(Default)]
struct Kinds {
    sends: Vec<usize>,
    acknowledgements: Vec<usize>,
    others: Vec<usize>,
}

impl Kinds {
    fn of(operations: &[&Operation]) -> Self {
        let mut kinds = Self::default();
        for (place, operation) in operations.iter().enumerate() {
            match operation {
                Operation::Send(_) => kinds.sends.push(place),
                Operation::Acknowledge(_) => kinds.acknowledgements.push(place),
                _ => kinds.others.push(place),
            }
        }
        kinds
    }

    /// Number of statements.
    fn statements(&self) -> usize {
        let groups = [&self.sends, &self.acknowledgements];
        groups.iter().filter(|group| !group.is_empty()).count() + self.others.len()
    }
}

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

/// Performs operations; a failure means that none of them was committed, unless the connection
/// broke. `executed` is called where only the commit is left.
pub(super) async fn perform(
    connection: &Connection,
    operations: &[&Operation],
    (limits, patience): (&Limits, Duration),
    executed: &(dyn Fn() + Sync),
) -> Result<Answers, Failure> {
    let patience = operations.iter().map(|operation| operation.patience(patience)).max();
    let patience = patience.unwrap_or_default();
    if !operations.is_empty()
        && operations.iter().all(|operation| matches!(operation, Operation::Take(_)))
    {
        return take_all(connection, operations, (limits, patience), executed).await;
    }
    in_time(patience, perform_together(connection, operations, limits, executed)).await
}

/// Takes messages in two steps: removed messages are read here before the commit, so that a failed
/// commit loses none.
async fn take_all(
    connection: &Connection,
    operations: &[&Operation],
    (limits, patience): (&Limits, Duration),
    executed: &(dyn Fn() + Sync),
) -> Result<Answers, Failure> {
    let takes: Vec<&Take> = operations.iter().copied().filter_map(as_take).collect();
    if takes.iter().all(|take| take.lease_ms > 0) {
        // A lease that was not answered expires by itself.
        let (taken, _) = in_time(patience, take_any(connection, &takes)).await?;
        return Ok(statuses(taken, limits));
    }
    let step = async {
        // Sent together; the transaction begins before the takes.
        let (begun, taken) = tokio::join!(
            biased;
            connection.batch_execute("BEGIN"),
            take_any(connection, &takes),
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
        Ok(()) => Ok(statuses(taken, limits)),
        Err(mut failure) => {
            let removed = operations.iter().zip(taken).filter(|(operation, _)| operation.removes());
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
) -> Result<(Vec<Result<Answer, Refusal>>, Option<String>), Error> {
    if let Some(done) = uniform::take(connection, takes).await? {
        return Ok(done);
    }
    let call = Call::prepare(connection, take(takes)).await?;
    let rows = Call::run(call.as_ref(), connection).await?;
    // Once a statement, and only where it gives rows.
    let marker = rows.first().and_then(|row| row.get(13));
    Ok((found(&rows, takes.len()), marker))
}

fn statuses(answers: Vec<Result<Answer, Refusal>>, limits: &Limits) -> Answers {
    answers.into_iter().map(|answer| answer.map_err(|refusal| refusal.status(limits))).collect()
}

async fn perform_together(
    connection: &Connection,
    operations: &[&Operation],
    limits: &Limits,
    executed: &(dyn Fn() + Sync),
) -> Result<Answers, Error> {
    let kinds = Kinds::of(operations);
    let mut answers = Gathered::new(operations.len(), limits);
    if kinds.sends.len() == operations.len()
        && let Some(done) =
            uniform::send(connection, &chosen(operations, &kinds.sends, as_send), executed).await?
    {
        answers.put(&kinds.sends, done);
        return Ok(answers.all());
    }
    let calls = Calls {
        send: Call::prepare(connection, send_many(&chosen(operations, &kinds.sends, as_send)))
            .await?,
        acknowledge: Call::prepare(
            connection,
            acknowledge_many(&chosen(operations, &kinds.acknowledgements, as_acknowledgement)),
        )
        .await?,
    };
    let rows = if kinds.statements() == 1 {
        let rows = calls.run(connection).await?;
        answers.put(&kinds.others, singles(connection, operations, &kinds.others).await?);
        rows
    } else {
        connection.batch_execute("BEGIN").await?;
        let done = async {
            let rows = calls.run(connection).await?;
            Ok((rows, singles(connection, operations, &kinds.others).await?))
        };
        match done.await {
            Ok((rows, others)) => {
                connection.batch_execute("COMMIT").await?;
                answers.put(&kinds.others, others);
                rows
            }
            Err(error) => {
                connection.batch_execute("ROLLBACK").await?;
                return Err(error);
            }
        }
    };
    answers.put(&kinds.sends, sent(&rows.send, kinds.sends.len()));
    answers.put(&kinds.acknowledgements, acknowledged(&rows.acknowledge));
    Ok(answers.all())
}

/// Answers at the places of their operations.
struct Gathered<'a> {
    answers: Vec<Option<Result<Answer, Status>>>,
    limits: &'a Limits,
}

impl<'a> Gathered<'a> {
    fn new(operations: usize, limits: &'a Limits) -> Self {
        Self { answers: vec![None; operations], limits }
    }

    fn put(&mut self, places: &[usize], rows: Vec<Result<Answer, Refusal>>) {
        for (place, row) in places.iter().zip(rows) {
            self.answers[*place] = Some(row.map_err(|refusal| refusal.status(self.limits)));
        }
    }

    fn all(self) -> Answers {
        let missing = || Err(Status::internal("an operation had no answer"));
        self.answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }
}

/// The operations of one kind.
fn chosen<'a, T>(
    operations: &[&'a Operation],
    places: &[usize],
    as_kind: fn(&'a Operation) -> Option<&'a T>,
) -> Vec<&'a T> {
    places.iter().filter_map(|place| as_kind(operations[*place])).collect()
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

/// A statement and what goes with it.
type Written<'a> = Option<(&'static str, Vec<Parameter<'a>>)>;
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

/// A statement that PostgreSQL knows.
struct Call<'a> {
    statement: Statement,
    parameters: Vec<Parameter<'a>>,
}

impl<'a> Call<'a> {
    async fn prepare(connection: &Connection, written: Written<'a>) -> Result<Option<Self>, Error> {
        let Some((text, parameters)) = written else { return Ok(None) };
        let statement = connection.prepare_cached(text).await?;
        Ok(Some(Self { statement, parameters }))
    }

    /// No rows where there is no call.
    async fn run(call: Option<&Self>, connection: &Connection) -> Result<Vec<Row>, Error> {
        let Some(Self { statement, parameters }) = call else { return Ok(Vec::new()) };
        let parameters: Vec<&(dyn ToSql + Sync)> =
            parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
        connection.query(statement, &parameters).await
    }
}

/// What a batch calls, and what comes back.
struct Calls<'a> {
    send: Option<Call<'a>>,
    acknowledge: Option<Call<'a>>,
}

struct Rows {
    send: Vec<Row>,
    acknowledge: Vec<Row>,
}

impl Calls<'_> {
    /// All of them, in this order, without waiting for one to send the next.
    async fn run(&self, connection: &Connection) -> Result<Rows, Error> {
        let (send, acknowledge) = tokio::join!(
            biased;
            Call::run(self.send.as_ref(), connection),
            Call::run(self.acknowledge.as_ref(), connection),
        );
        Ok(Rows { send: send?, acknowledge: acknowledge? })
    }
}

async fn singles(
    connection: &Connection,
    operations: &[&Operation],
    places: &[usize],
) -> Result<Vec<Result<Answer, Refusal>>, Error> {
    let mut answers = Vec::with_capacity(places.len());
    for place in places {
        answers.push(single(connection, operations[*place]).await?);
    }
    Ok(answers)
}

async fn query(
    connection: &Connection,
    text: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let statement = connection.prepare_cached(text).await?;
    connection.query(&statement, parameters).await
}

fn send_many<'a>(sends: &[&'a Send]) -> Written<'a> {
    if sends.is_empty() {
        return None;
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
    Some((SEND, parameters))
}

/// The row of `send_many`: no codes where all went well.
fn sent(rows: &[Row], count: usize) -> Vec<Result<Answer, Refusal>> {
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

fn take<'a>(takes: &[&'a Take]) -> Written<'a> {
    if takes.is_empty() {
        return None;
    }
    let leases = column(takes, |take| take.lease_ms);
    let clients = column(takes, |take| take.selector.client);
    let parameters = vec![
        clients,
        column(takes, |take| take.selector.queue),
        column(takes, |take| take.selector.sender),
        column(takes, |take| take.selector.by_priority),
        leases,
    ];
    Some((TAKE, parameters))
}

/// The rows of `take_many` at their places; where there is none, no message was there.
fn found(rows: &[Row], count: usize) -> Vec<Result<Answer, Refusal>> {
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

fn acknowledge_many<'a>(held: &[&'a Held]) -> Written<'a> {
    if held.is_empty() {
        return None;
    }
    let parameters = vec![
        column(held, |held| held.client),
        column(held, |held| held.message),
        column(held, |held| held.lease),
    ];
    Some((ACKNOWLEDGE, parameters))
}

fn acknowledged(rows: &[Row]) -> Vec<Result<Answer, Refusal>> {
    rows.iter().map(|row| coded(row, |_| Answer::Done)).collect()
}

/// Operations that come one at a time.
async fn single(
    connection: &Connection,
    operation: &Operation,
) -> Result<Result<Answer, Refusal>, Error> {
    let done = |_: &Row| Answer::Done;
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
        Operation::ChangeQueue(change) => return change_queue(connection, change).await,
        Operation::PutBack(back) => return put_back(connection, back).await,
        Operation::TakeOnce(take, at_most, request) => {
            return take_once(connection, take, *at_most, request).await;
        }
        Operation::AcknowledgeOnce(held, request) => {
            return acknowledge_once(connection, held, request).await;
        }
        Operation::DeadLetters(listing) => return dead_letters(connection, listing).await,
        Operation::Redrive { queue, messages, target } => {
            return redrive(connection, *queue, messages, *target).await;
        }
        Operation::Archived(listing) => return archived(connection, listing).await,
        Operation::Read(selector) => return read(connection, selector).await,
        Operation::ListQueues { client, all, after, limit } => {
            let parameters: [&(dyn ToSql + Sync); 4] = [client, all, after, limit];
            return list(connection, &parameters).await;
        }
        Operation::Statistics { queue } => return statistics(connection, *queue).await,
        Operation::Purge { queue } => return purge(connection, *queue).await,
        Operation::Send(_) | Operation::Take(_) | Operation::Acknowledge(_) => {
            unreachable!("these are performed together with their kind")
        }
    };
    let rows = query(connection, text, &parameters).await?;
    let Some(row) = rows.first() else { return Ok(Err(Refusal(-1))) };
    let numbered = matches!(operation, Operation::Hello { .. } | Operation::CreateQueue(_));
    let answer = |row: &Row| if numbered { Answer::Number(id(row.get(1))) } else { done(row) };
    Ok(coded(row, answer))
}

async fn change_queue(
    connection: &Connection,
    change: &QueueChange,
) -> Result<Result<Answer, Refusal>, Error> {
    let text = "SELECT change_queue($1, $2, $3, $4, $5, $6, $7)";
    let parameters: [&(dyn ToSql + Sync); 7] = [
        &change.queue,
        &change.name,
        &change.max_deliveries,
        &change.dead_letter,
        &change.retention_ms,
        &change.archive_ms,
        &change.paused,
    ];
    let rows = query(connection, text, &parameters).await?;
    Ok(rows.first().map_or(Err(Refusal(-1)), |row| coded(row, |_| Answer::Done)))
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
    at_most: i32,
    request: &RequestId,
) -> Result<Result<Answer, Refusal>, Error> {
    let Selector { client, queue, sender, by_priority } = &take.selector;
    let RequestId { id, operation, digest } = request;
    let parameters: [&(dyn ToSql + Sync); 9] =
        [client, queue, sender, by_priority, &take.lease_ms, &at_most, operation, id, digest];
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
    connection: &Connection,
    queue: i64,
    messages: &[i64],
    target: Option<i64>,
) -> Result<Result<Answer, Refusal>, Error> {
    for known in [Some(queue), target].into_iter().flatten() {
        if !is_queue(connection, known).await? {
            return Ok(Err(Refusal(3)));
        }
    }
    let some = (!messages.is_empty()).then_some(messages);
    let text = "SELECT moved, last FROM redrive($1, $2, $3, $4, $5)";
    let (mut moved, mut after) = (0, 0_i64);
    loop {
        let rows =
            query(connection, text, &[&queue, &some, &target, &after, &REDRIVE_STEP]).await?;
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

async fn purge(connection: &Connection, queue: i64) -> Result<Result<Answer, Refusal>, Error> {
    if !is_queue(connection, queue).await? {
        return Ok(Err(Refusal(3)));
    }
    let mut dropped = 0;
    loop {
        let rows = query(connection, "SELECT purge_some($1, $2)", &[&queue, &PURGE_STEP]).await?;
        let step = rows.first().map_or(0, |row| id(row.get(0)));
        dropped += step;
        if step == 0 {
            return Ok(Ok(Answer::Number(dropped)));
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
