//! The caller's side of `Converse`: many calls on one stream.
//!
//! Calls that come while the connection is being written go out as one message, and their answers
//! come back as one: what a call of its own costs both sides is shared. Left out: taking a call
//! back. A caller that goes away before its call was sent is forgotten; afterwards the answer is
//! read and dropped, as the protocol has no way to recall it, so that a caller that must not lose
//! a message asks with a request id.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kendall_protocols::queue as wire;
use kendall_protocols::queue::OPEN_CALLS;
use kendall_protocols::queue::call::Operation;
use kendall_protocols::queue::reply::Answer;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::driver::ErrorKind;
use crate::grpc::{self, Access, Refusal};
use crate::tls::Reached;
/// Bytes of calls that may wait to be sent; further callers wait. A larger call goes alone.
const UNSENT_BYTES: u32 = 4 << 20;
/// Bytes from which a message of calls takes no more: well below the 16 MiB that a server reads.
const MESSAGE_BYTES: usize = 1 << 20;
/// Bytes of a message of replies beyond which it is taken for nonsense: twice what a server sends.
const REPLIES_BYTES: usize = 32 << 20;

/// A stream to one middleware that any number of tasks call over, inside a runtime of tokio.
///
/// When the stream breaks, its calls fail with what broke it, and the next call opens another.
pub struct Conversation {
    target: SocketAddr,
    access: Access,
    line: Mutex<Option<Line>>,
    /// Held while it is opened, so that it is opened once.
    opening: tokio::sync::Mutex<()>,
}

impl Conversation {
    /// With this middleware; connects at the first call.
    pub fn new(target: SocketAddr) -> Self {
        Self::reached(target, Access::default())
    }

    /// As [`new`](Self::new), with one that is reached so.
    pub fn reached(target: SocketAddr, access: Access) -> Self {
        Self { target, access, line: Mutex::new(None), opening: tokio::sync::Mutex::new(()) }
    }

    /// Opens the stream, unless it is open.
    pub async fn open(&self) -> Result<(), Refusal> {
        self.gathering().await.map(drop)
    }

    /// Breaks the stream: calls under way fail, and a later one opens another.
    pub fn close(&self) {
        drop(self.line.lock().take());
    }

    /// Asks, and waits for the answer; opens the stream first where there is none.
    pub async fn call(&self, operation: Operation) -> Result<Answer, Refusal> {
        let mut call = wire::Call { tag: 0, operation: Some(operation) };
        loop {
            let gathering = self.gathering().await?;
            match gathering.ask(call).await {
                Ok(reply) => {
                    // The answering side never lets go of a caller without a word.
                    let gone = Err(Refusal::Broken(ErrorKind::ConnectionClosed));
                    return reply.await.unwrap_or(gone);
                }
                // The stream ended before the call had a place on it.
                Err(unsent) => call = unsent,
            }
        }
    }

    async fn gathering(&self) -> Result<Arc<Gathering>, Refusal> {
        let present = || {
            let line = self.line.lock();
            let line = line.as_ref().filter(|line| !line.gathering.places.is_closed());
            line.map(|line| Arc::clone(&line.gathering))
        };
        if let Some(gathering) = present() {
            return Ok(gathering);
        }
        let _opening = self.opening.lock().await;
        if let Some(gathering) = present() {
            return Ok(gathering);
        }
        let line = Line::open(self.target, &self.access).await?;
        let gathering = Arc::clone(&line.gathering);
        *self.line.lock() = Some(line);
        Ok(gathering)
    }
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Conversation").field("target", &self.target).finish_non_exhaustive()
    }
}

/// An open stream; dropped, its connection is closed.
struct Line {
    gathering: Arc<Gathering>,
    /// Without it the connection would take itself for unused.
    _sender: SendRequest<Outgoing>,
    /// The connection and who reads from it.
    _tasks: JoinSet<()>,
}

/// HTTP/2 over a connection, driven by a task of its own.
async fn greet<S>(stream: S, tasks: &mut JoinSet<()>) -> Result<SendRequest<Outgoing>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    let (sender, connection) = handshake(TokioExecutor::new(), io).await?;
    // An error of the connection is returned to those who read from it.
    tasks.spawn(async move { connection.await.unwrap_or_default() });
    Ok(sender)
}

impl Line {
    async fn open(target: SocketAddr, access: &Access) -> Result<Self, Refusal> {
        let unreachable = |error| Refusal::Connect(Arc::new(error));
        let mut tasks = JoinSet::new();
        let greeted = match access.connect(target).await.map_err(unreachable)? {
            Reached::Plain(stream) => greet(stream, &mut tasks).await,
            Reached::Encrypted(stream) => greet(stream, &mut tasks).await,
        };
        let mut sender = greeted.map_err(|error| unreachable(std::io::Error::other(error)))?;
        let gathering = Arc::new(Gathering::default());
        let request = grpc::request(
            target,
            access,
            &super::path("Converse"),
            Outgoing(Arc::clone(&gathering)),
        )?;
        let response = sender.send_request(request).await.map_err(|error| grpc::broken(&error))?;
        if response.status() != StatusCode::OK {
            return Err(Refusal::Broken(ErrorKind::Garbage));
        }
        grpc::refused(response.headers())?;
        let reading = Arc::clone(&gathering);
        tasks.spawn(async move {
            let Err(end) = read(response.into_body(), &reading).await;
            reading.end(&end);
        });
        Ok(Self { gathering, _sender: sender, _tasks: tasks })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.gathering.end(&Refusal::Broken(ErrorKind::ConnectionClosed));
    }
}

/// Where calls gather until the connection takes them, and wait until they are answered.
struct Gathering {
    state: Mutex<State>,
    /// For calls that are not answered; closed when the stream has ended.
    places: Arc<Semaphore>,
    /// For bytes of calls that are not sent.
    bytes: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    unsent: VecDeque<Unsent>,
    open: HashMap<u64, Open>,
    tags: u64,
    /// Wakes the connection, where it waits for calls.
    waker: Option<Waker>,
    ended: bool,
}

struct Unsent {
    call: wire::Call,
    _bytes: OwnedSemaphorePermit,
}

struct Open {
    caller: oneshot::Sender<Result<Answer, Refusal>>,
    _place: OwnedSemaphorePermit,
}

impl Default for Gathering {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            places: Arc::new(Semaphore::new(OPEN_CALLS)),
            bytes: Arc::new(Semaphore::new(UNSENT_BYTES as usize)),
        }
    }
}

impl Gathering {
    /// Puts a call on the stream, as soon as there is room; gives it back when the stream ended.
    async fn ask(
        &self,
        mut call: wire::Call,
    ) -> Result<oneshot::Receiver<Result<Answer, Refusal>>, wire::Call> {
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return Err(call) };
        let bytes = u32::try_from(call.encoded_len()).unwrap_or(u32::MAX).min(UNSENT_BYTES);
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(bytes).await;
        let Ok(bytes) = bytes else { return Err(call) };
        let (caller, reply) = oneshot::channel();
        let mut state = self.state.lock();
        if state.ended {
            return Err(call);
        }
        state.tags += 1;
        call.tag = state.tags;
        state.open.insert(call.tag, Open { caller, _place: place });
        state.unsent.push_back(Unsent { call, _bytes: bytes });
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(reply)
    }

    /// What is to be sent next, with its prefix; nothing while there is nothing.
    fn take(&self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut message = wire::Calls::default();
        let mut bytes = 0;
        while bytes < MESSAGE_BYTES
            && let Some(Unsent { call, .. }) = state.unsent.pop_front()
        {
            if state.open.get(&call.tag).is_some_and(|open| open.caller.is_closed()) {
                // Its client no longer waits for it.
                state.open.remove(&call.tag);
                continue;
            }
            bytes += call.encoded_len();
            message.calls.push(call);
        }
        if !message.calls.is_empty() {
            let mut body = Vec::with_capacity(bytes + 8 * message.calls.len());
            grpc::write(&message, &mut body);
            return Poll::Ready(Some(body.into()));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Hands replies to their callers.
    fn answer(&self, replies: wire::Replies) -> Result<(), Refusal> {
        let mut answered = Vec::with_capacity(replies.replies.len());
        let mut state = self.state.lock();
        for reply in replies.replies {
            let open = state.open.remove(&reply.tag);
            // A reply without a request: the stream is out of step.
            answered.push((open.ok_or(Refusal::Broken(ErrorKind::Garbage))?, reply));
        }
        drop(state);
        for (open, wire::Reply { code, error, answer, .. }) in answered {
            let answer = match answer {
                _ if code != 0 => Err(Refusal::Status { code, text: error }),
                Some(answer) => Ok(answer),
                None => Err(Refusal::Broken(ErrorKind::Garbage)),
            };
            // A caller that went away gets nothing.
            open.caller.send(answer).unwrap_or_default();
        }
        Ok(())
    }

    /// Tells all callers that the stream is no more.
    fn end(&self, why: &Refusal) {
        self.places.close();
        self.bytes.close();
        let mut state = self.state.lock();
        state.ended = true;
        let (open, waker) = (std::mem::take(&mut state.open), state.waker.take());
        state.unsent.clear();
        drop(state);
        for open in open.into_values() {
            open.caller.send(Err(why.clone())).unwrap_or_default();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// What is sent, as the body of a request that does not end.
struct Outgoing(Arc<Gathering>);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.take(context).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}

/// Reads replies until the stream ends, which is never well: the caller's side ends none.
async fn read(mut body: Incoming, gathering: &Gathering) -> Result<Infallible, Refusal> {
    let mut input = BytesMut::new();
    loop {
        let frame = match body.frame().await {
            Some(frame) => frame.map_err(|error| grpc::broken(&error))?,
            None => return Err(Refusal::Broken(ErrorKind::ConnectionClosed)),
        };
        match frame.into_data() {
            Ok(data) => {
                input.extend_from_slice(&data);
                while let Some(message) = message(&mut input)? {
                    let replies = wire::Replies::decode(message);
                    gathering.answer(replies.map_err(|_| Refusal::Broken(ErrorKind::Garbage))?)?;
                }
            }
            Err(frame) => {
                let status = frame.trailers_ref().map(grpc::status).transpose()?.flatten();
                let (code, text) = status.ok_or(Refusal::Broken(ErrorKind::Garbage))?;
                return Err(Refusal::Ended { code, text });
            }
        }
    }
}

/// The next whole message, without its prefix.
fn message(input: &mut BytesMut) -> Result<Option<Bytes>, Refusal> {
    let Some(&[compressed, ref length @ ..]) = input.first_chunk::<5>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if compressed != 0 || length > REPLIES_BYTES {
        return Err(Refusal::Broken(ErrorKind::Garbage));
    }
    if input.len() - 5 < length {
        return Ok(None);
    }
    input.advance(5);
    Ok(Some(input.split_to(length).freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND_BYTES: usize = 100_000;

    fn send() -> wire::Call {
        let content = "x".repeat(SEND_BYTES);
        let operation = Operation::Send(wire::SendRequest { content, ..Default::default() });
        wire::Call { tag: 0, operation: Some(operation) }
    }

    /// What is sent next, without its prefix.
    fn sent(gathering: &Gathering) -> Vec<wire::Call> {
        match gathering.take(&Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(mut message)) => {
                message.advance(5);
                wire::Calls::decode(message).unwrap().calls
            }
            _ => Vec::new(),
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn replies(tag: u64) -> wire::Replies {
        let reply = wire::Reply { tag, code: 5, error: "none".into(), ..Default::default() };
        wire::Replies { replies: vec![reply] }
    }

    #[test]
    fn calls_that_wait_are_bounded_and_so_are_messages() {
        let gathering = Gathering::default();
        let mut callers = Vec::new();
        while let Some(caller) = now(gathering.ask(send())) {
            callers.push(caller.unwrap());
        }
        assert_eq!(callers.len(), UNSENT_BYTES as usize / send().encoded_len(), "by their bytes");
        let first = sent(&gathering);
        let bytes: usize = first.iter().map(wire::Call::encoded_len).sum();
        assert!((MESSAGE_BYTES..MESSAGE_BYTES + 2 * SEND_BYTES).contains(&bytes), "{bytes}");
        assert!(now(gathering.ask(send())).is_some(), "what was sent made room");
        while !sent(&gathering).is_empty() {}
        let small = || wire::Call::default();
        let (mut open, ask) = (callers.len(), || now(gathering.ask(small())));
        while let Some(caller) = ask() {
            drop(caller.unwrap());
            open += 1;
        }
        assert_eq!(open, OPEN_CALLS, "by their number");
        gathering.answer(replies(1)).unwrap();
        assert!(ask().is_some(), "what was answered made room");
    }

    #[test]
    fn a_call_whose_caller_went_away_is_not_sent_or_its_answer_dropped() {
        let gathering = Gathering::default();
        drop(now(gathering.ask(wire::Call::default())).unwrap());
        let kept = now(gathering.ask(wire::Call::default())).unwrap().unwrap();
        let tags: Vec<u64> = sent(&gathering).iter().map(|call| call.tag).collect();
        assert_eq!(tags, [2]);
        drop(kept);
        gathering.answer(replies(2)).unwrap();
        assert_eq!(gathering.places.available_permits(), OPEN_CALLS);
    }

    #[test]
    fn a_reply_to_nothing_breaks_the_stream_and_every_caller_is_told() {
        let gathering = Gathering::default();
        let caller = || now(gathering.ask(wire::Call::default())).unwrap().unwrap();
        let (mut refused, mut open) = (caller(), caller());
        gathering.answer(replies(1)).unwrap();
        let said = refused.try_recv().unwrap();
        assert!(matches!(said, Err(Refusal::Status { code: 5, .. })), "{said:?}");
        let twice = gathering.answer(replies(1)).unwrap_err();
        assert!(matches!(twice, Refusal::Broken(ErrorKind::Garbage)), "{twice:?}");
        gathering.end(&twice);
        let said = open.try_recv().unwrap();
        assert!(matches!(said, Err(Refusal::Broken(ErrorKind::Garbage))), "{said:?}");
        assert!(
            now(gathering.ask(wire::Call::default())).unwrap().is_err(),
            "given back, for another stream"
        );
        assert!(matches!(gathering.take(&Context::from_waker(Waker::noop())), Poll::Ready(None)));
    }

    #[test]
    fn messages_are_cut_out_wherever_the_network_cut_them_and_nonsense_is_refused() {
        let mut body = Vec::new();
        grpc::write(&replies(7), &mut body);
        grpc::write(&replies(8), &mut body);
        for cut in 0..body.len() {
            let mut input = BytesMut::from(&body[..cut]);
            let mut tags = Vec::new();
            let mut take = |input: &mut BytesMut| {
                while let Some(text) = message(input).unwrap() {
                    tags.push(wire::Replies::decode(text).unwrap().replies[0].tag);
                }
            };
            take(&mut input);
            input.extend_from_slice(&body[cut..]);
            take(&mut input);
            assert_eq!(tags, [7, 8], "cut at {cut}");
        }
        for nonsense in [[1, 0, 0, 0, 0], [0, 255, 255, 255, 255], [0, 2, 0, 0, 1]] {
            let refused = message(&mut BytesMut::from(&nonsense[..]));
            assert!(matches!(refused, Err(Refusal::Broken(ErrorKind::Garbage))), "{nonsense:?}");
        }
    }
}
